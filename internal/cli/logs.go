package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/peerapi"
)

const (
	// logProxy is the path of the controller's server behind the proxy of the API server.
	logProxy = "/api/v1/namespaces/" + v1alpha1.SystemNamespace + "/services/https:refit-controller:metrics/proxy/logs/"
	// logTokenSeconds is how long the token is valid, the least that the API server makes.
	logTokenSeconds = 600
	// logAnswerTime is how long the first byte of an answer may take.
	logAnswerTime = time.Minute
)

type logFlags struct {
	step   string
	follow bool
	since  time.Duration
	tail   int
}

func newLogs(o *options) *cobra.Command {
	var f logFlags
	c := &cobra.Command{
		Use:   "logs NODE",
		Short: "Print the log of a node's agent, through the API server",
		Long: `Print the log of a node's agent, through the API server.

The controller asks the agent for its journal and passes it on: at most 10000 lines and
1 MiB, without texts that look like a password, a token or a key. With -f the command
prints new lines until it is ended.

--step prints only the lines from the start of a step of an update to its end; refit
plan and refit explain node/NAME show the steps.

The account needs the Role refit-log-reader in namespace refit-system.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.tail < 1 || f.tail > peerapi.MaxLogLines {
				return console.UsageErrorf("--tail %d: want 1 to %d", f.tail, peerapi.MaxLogLines)
			}
			if f.since < 0 || f.since > 0 && f.since < time.Second {
				return console.UsageErrorf("--since %s: want at least 1s", f.since)
			}
			return o.logs(cmd.Context(), args[0], f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.step, "step", "", "print only the lines of this step (ID)")
	fl.BoolVarP(&f.follow, "follow", "f", false, "print new lines until the command is ended")
	fl.DurationVar(&f.since, "since", 0, "print only lines that are newer, such as 30m or 2h (default any age)")
	fl.IntVar(&f.tail, "tail", peerapi.DefaultLogLines, "number of lines, the last ones")
	return c
}

func (o *options) logs(ctx context.Context, node string, f logFlags) error {
	token, err := o.logToken(ctx)
	if err != nil {
		return err
	}
	body, err := o.openLog(ctx, node, token, peerapi.LogQuery{Lines: f.tail, Since: f.since, Follow: f.follow})
	if err != nil {
		return err
	}
	defer body.Close()
	steps := stepFilter{id: f.step}
	if err := printLog(o.Out, body, &steps); err != nil && ctx.Err() == nil {
		return fmt.Errorf("the log of node %s broke off: %w", node, err)
	}
	if f.follow && ctx.Err() == nil {
		return fmt.Errorf("the log of node %s ended: the controller or the agent stopped; run the command again", node)
	}
	if f.step != "" && !steps.found {
		o.Note("the log has no step %s; its steps: %s. A longer --tail or --since shows older ones", f.step, cmp.Or(strings.Join(steps.seen, ", "), "-"))
	}
	return nil
}

// logToken makes a token that only the controller accepts, and only for logs.
func (o *options) logToken(ctx context.Context) (string, error) {
	c, err := o.Client()
	if err != nil {
		return "", err
	}
	seconds := int64(logTokenSeconds)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: peerapi.LogReader}}
	tr := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{peerapi.LogAudience}, ExpirationSeconds: &seconds}}
	err = c.SubResource("token").Create(ctx, account, tr)
	switch {
	case apierrors.IsForbidden(err):
		return "", console.WithExit(console.ExitBlocked, fmt.Errorf("you may not read logs of nodes: %w. An administrator allows it: %s", err, bindLogReader))
	case apierrors.IsNotFound(err):
		return "", console.WithExit(console.ExitBlocked, errors.New("this installation of refit gives no logs of nodes: run refit install with a bundle of this version"))
	case err != nil:
		return "", inputs.ListError(err)
	}
	return tr.Status.Token, nil
}

const bindLogReader = "kubectl -n refit-system create rolebinding log-reader --role=refit-log-reader --user=NAME"

// openLog asks the controller, through the proxy of the API server.
func (o *options) openLog(ctx context.Context, node, token string, q peerapi.LogQuery) (io.ReadCloser, error) {
	cfg, err := o.Config()
	if err != nil {
		return nil, err
	}
	cfg.Timeout = 0 // a log that is followed has no end
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the API server %s: %w", cfg.Host, err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the API server %s: %w", cfg.Host, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	slow := time.AfterFunc(logAnswerTime, cancel)
	u := base.JoinPath(logProxy + url.PathEscape(node))
	u.RawQuery = q.Values().Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set(peerapi.LogTokenHeader, token)
	resp, err := c.Do(req)
	if !slow.Stop() {
		cancel()
		return nil, fmt.Errorf("the controller did not answer within %s: try again; refit status shows whether it runs", logAnswerTime)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("the API server did not answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer cancel()
		defer resp.Body.Close()
		return nil, logRefusal(resp)
	}
	return cancelingBody{resp.Body, cancel}, nil
}

// cancelingBody ends the request when it is closed.
type cancelingBody struct {
	io.ReadCloser
	cancel func()
}

func (b cancelingBody) Close() error { defer b.cancel(); return b.ReadCloser.Close() }

// logRefusal is why there is no log: a text of the controller, or a Status of the API server.
func logRefusal(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // a part of it is enough
	said := strings.TrimSpace(string(data))
	var status metav1.Status
	fromServer := json.Unmarshal(data, &status) == nil && status.Kind == "Status"
	if fromServer {
		said = status.Message
	}
	switch {
	case fromServer && resp.StatusCode == http.StatusForbidden:
		said += ". An administrator allows it: " + bindLogReader
	case fromServer && (resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusNotFound):
		said += ": no controller of refit answers; see kubectl -n refit-system get pods"
	case resp.StatusCode == http.StatusNotFound && strings.HasPrefix(said, "404 page not found"):
		said = "the controller is older than this command and gives no logs: run refit install with a bundle of this version"
	}
	return console.WithExit(console.ExitBlocked, errors.New(said))
}

// printLog copies the wanted lines, each when it is complete.
func printLog(to io.Writer, from io.Reader, steps *stepFilter) error {
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 && steps.wants(string(line)) {
			if _, err := to.Write(line); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull): // a very long line comes in parts
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// stepFilter passes the lines of one step: from its start to the start of another one, or to the
// end of the run. Without an ID it passes all lines.
type stepFilter struct {
	id     string
	inside bool
	found  bool
	seen   []string
}

var (
	stepStarted = regexp.MustCompile(`msg="step started".* step="?([^" ]+)`)
	runFinished = regexp.MustCompile(`msg="run finished"`)
)

func (s *stepFilter) wants(line string) bool {
	if s.id == "" {
		return true
	}
	if m := stepStarted.FindStringSubmatch(line); m != nil {
		if !slices.Contains(s.seen, m[1]) {
			s.seen = append(s.seen, m[1])
		}
		s.inside = m[1] == s.id
	}
	s.found = s.found || s.inside
	was := s.inside
	if runFinished.MatchString(line) {
		s.inside = false
	}
	return was
}
