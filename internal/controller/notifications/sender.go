package notifications

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/outbound"
	"github.com/refit-dev/refit/internal/text"
)

// SignatureHeader has the HMAC of the body of a message to a webhook.
const SignatureHeader = "X-Refit-Signature-256"

const (
	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
	// firstPause is the pause after a failed request; it doubles up to maxPause.
	firstPause, maxPause = 5 * time.Second, 5 * time.Minute
	// maxAnswer is how much of an answer is read, so that the connection can be used again.
	maxAnswer = 64 << 10
)

// Results in the metric.
const (
	resultSent    = "sent"
	resultFailed  = "failed"
	resultDropped = "dropped"
)

func newMetric() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "refit", Name: "notifications_total",
		Help: "Messages to receivers of notifications, by result: sent, failed (an attempt, which is repeated) or dropped (it was not true any more before it arrived, or the queue was full)."}, []string{"receiver", "result"})
}

// pause returns how long to wait after so many failures: at random between half and all of a
// time that doubles. So not all clusters ask a receiver at once when it is back.
func pause(failures int) time.Duration {
	d := maxPause
	if failures < 7 {
		d = min(maxPause, firstPause<<max(0, failures-1))
	}
	return d/2 + rand.N(d/2)
}

// poster sends requests to one receiver.
type poster struct {
	*receiver
	http    *http.Client
	timeout time.Duration
	log     logr.Logger
	metric  *prometheus.CounterVec
	pause   func(failures int) time.Duration
}

func newPoster(r *receiver, servers *outbound.Guard, log logr.Logger, metric *prometheus.CounterVec) *poster {
	t := servers.Transport()
	t.TLSClientConfig = &tls.Config{RootCAs: r.roots, MinVersion: tls.VersionTLS12}
	t.MaxIdleConnsPerHost = 1
	return &poster{receiver: r, timeout: requestTimeout, log: log, metric: metric, pause: pause,
		http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (p *poster) count(result string) { p.metric.WithLabelValues(p.name, result).Inc() }

// post sends a JSON body. Its errors have no URL, which may have a secret in its path.
func (p *poster) post(ctx context.Context, to *url.URL, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return errors.New("the request cannot be made: check the url of the receiver")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "refit-controller/"+componentversion.Refit())
	if p.token != "" {
		req.Header.Set("Authorization", "Bearer "+p.token)
	}
	if p.key != nil {
		req.Header.Set(SignatureHeader, sign(p.key, body))
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return p.cleanError(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // only the status counts
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return nil
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return fmt.Errorf("it answered %d, and redirects are refused: set url to the address that answers itself", resp.StatusCode)
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return fmt.Errorf("it answered %d: check hmacKeyFile and bearerTokenFile of the receiver", resp.StatusCode)
	}
	return fmt.Errorf("it answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}

func (p *poster) cleanError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("it did not answer within %s", p.timeout)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return errors.New(text.HideSecrets(err.Error()))
}

// sign returns the value of SignatureHeader.
func sign(key, body []byte) string {
	h := hmac.New(sha256.New, key)
	_, _ = h.Write(body) // a hash accepts every write
	return "sha256=" + hex.EncodeToString(h.Sum(nil))
}

// webhook delivers notices to one webhook, one request at a time.
type webhook struct {
	*poster
	// delivered is called for each notice that arrived.
	delivered func(n notice)
	now       func() time.Time

	mu      sync.Mutex
	pending []*delivery
	wake    chan struct{}
}

// delivery is a notice that waits. Its body stays the same in every attempt.
type delivery struct {
	notice
	body     []byte
	failures int
	next     time.Time
}

func newWebhook(p *poster, now func() time.Time, delivered func(n notice)) *webhook {
	return &webhook{poster: p, now: now, delivered: delivered, wake: make(chan struct{}, 1)}
}

// set replaces what waits: what is not due any more is dropped. It does not wait.
func (w *webhook) set(due []notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := map[string]*delivery{}
	for _, d := range w.pending {
		waiting[d.ID] = d
	}
	w.pending = w.pending[:0:0]
	for _, n := range due {
		d := waiting[n.ID]
		if d == nil {
			body, err := json.Marshal(n)
			if err != nil { // strings and numbers only
				w.log.Error(err, "failed to write a notification", "receiver", w.name)
				continue
			}
			d = &delivery{notice: n, body: body}
		}
		delete(waiting, n.ID)
		w.pending = append(w.pending, d)
	}
	for range waiting {
		w.count(resultDropped)
	}
	for len(w.pending) > maxQueue {
		w.pending = w.pending[1:]
		w.count(resultDropped)
	}
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
}

// next returns the notice to send now, or how long to wait.
func (w *webhook) next() (*delivery, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wait := time.Hour
	for _, d := range w.pending {
		left := d.next.Sub(w.now())
		if left <= 0 || left > maxPause { // a longer pause comes from a clock that was set
			return d, 0
		}
		wait = min(wait, left)
	}
	return nil, wait
}

func (w *webhook) run(ctx context.Context) {
	for ctx.Err() == nil {
		d, wait := w.next()
		if d != nil {
			w.send(ctx, d)
			continue
		}
		sleep(ctx, wait, w.wake)
	}
	w.http.CloseIdleConnections()
}

func (w *webhook) send(ctx context.Context, d *delivery) {
	err := w.post(ctx, w.url, d.body)
	if err != nil && ctx.Err() != nil {
		return // the controller stops
	}
	w.mu.Lock()
	if err != nil {
		d.failures++
		d.next = w.now().Add(w.pause(d.failures))
	} else {
		w.remove(d)
	}
	w.mu.Unlock()
	if err != nil {
		w.count(resultFailed)
		w.log.Info("failed to send notification", "receiver", w.name, "event", d.Event, "update", d.Update, "attempt", d.failures, "error", err.Error())
		return
	}
	w.count(resultSent)
	w.log.Info("notification sent", "receiver", w.name, "event", d.Event, "update", d.Update, "id", d.ID)
	w.delivered(d.notice)
}

func (w *webhook) remove(gone *delivery) {
	left := w.pending[:0:0]
	for _, d := range w.pending {
		if d != gone {
			left = append(left, d)
		}
	}
	w.pending = left
}

// sleep returns after a time, when wake has an event, or when the context ends.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-t.C:
	}
}
