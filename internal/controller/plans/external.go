package plans

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/clusterapi/hooks"
	"github.com/refit-dev/refit/internal/pipeline/capidiff"
)

const (
	// offerLifetime is how old an answer to the question of what an updater would move may
	// be; keepSilence the same where it gave none.
	offerLifetime   = time.Minute
	silenceLifetime = 5 * time.Second
	// soonest is when an updater that is at work is asked again, at the latest often.
	soonest = 2 * time.Second
	latest  = 30 * time.Second
	// answerRetention is how long an unused answer stays, maxAnswers how many there are at
	// most.
	answerRetention = 10 * time.Minute
	maxAnswers      = 20_000
	// maxParallelCalls is how many updaters' answers are waited for at a time.
	maxParallelCalls = 16
)

// ExternalUpdaters asks external updaters. The zero value with a Client is ready.
type ExternalUpdaters struct {
	// Client reads Updaters.
	Client client.Reader
	// Called runs when an answer has arrived; may be nil.
	Called func()
	// Now is the clock.
	Now func() time.Time

	// Registry keeps the connections; the zero value is ready.
	Registry hooks.Registry

	mu      sync.Mutex
	answers map[question]*cachedAnswer
	slots   chan struct{}
}

// question says who is asked, about which node, and what.
type question struct{ updater, node, text string }

type cachedAnswer struct {
	busy   bool
	asked  bool // there is an answer, or silence
	answer hooks.Answer
	silent string
	due    time.Time
	used   time.Time
}

// updaters that are asked about plain nodes, in their order.
func (c *ExternalUpdaters) updaters(ctx context.Context) ([]*hooks.Registered, error) {
	all, err := c.Registry.List(ctx, c.Client)
	var out []*hooks.Registered
	for _, r := range all {
		if r.Spec.Nodes {
			out = append(out, r)
		}
	}
	return out, err
}

// Object is a node as the hooks show it.
func Object(node string, fields map[string]string) map[string]any {
	in := map[string]any{}
	for path, value := range fields {
		if value != "" {
			in[path] = value
		}
	}
	return map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Node", "metadata": map[string]any{"name": node}, "spec": map[string]any{"fields": in}}
}

// lastAnswer returns the last answer, and asks again in the background when it is due.
func (c *ExternalUpdaters) lastAnswer(ctx context.Context, r *hooks.Registered, k question, h hooks.Hook, req hooks.Request, rest func(*cachedAnswer) time.Duration) cachedAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Now()
	c.sweep(now)
	x := c.answers[k]
	if x == nil {
		x = &cachedAnswer{}
		c.answers[k] = x
	}
	x.used = now
	if !x.busy && !now.Before(x.due) {
		x.busy = true
		go c.callOnce(context.WithoutCancel(ctx), r, x, h, req, rest)
	}
	return *x
}

// callOnce asks once. The updater's own deadline bounds it.
func (c *ExternalUpdaters) callOnce(ctx context.Context, r *hooks.Registered, x *cachedAnswer, h hooks.Hook, req hooks.Request, rest func(*cachedAnswer) time.Duration) {
	c.slots <- struct{}{}
	answer, silent := r.Ask(ctx, h, req)
	<-c.slots
	c.mu.Lock()
	x.busy, x.asked, x.answer, x.silent = false, true, answer, silent
	x.due = c.Now().Add(rest(x))
	c.mu.Unlock()
	if c.Called != nil {
		c.Called()
	}
}

// sweep drops unused answers.
func (c *ExternalUpdaters) sweep(now time.Time) {
	if c.answers == nil {
		c.answers, c.slots = map[question]*cachedAnswer{}, make(chan struct{}, maxParallelCalls)
	}
	if len(c.answers) < maxAnswers {
		return
	}
	for k, x := range c.answers {
		if !x.busy && now.Sub(x.used) > answerRetention {
			delete(c.answers, k)
		}
	}
}

func machine(o map[string]any) hooks.Objects { return hooks.Objects{capidiff.Machine: o} }
