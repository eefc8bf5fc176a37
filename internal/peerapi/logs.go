package peerapi

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Names with which a person reads the log of a node through the controller. The token is for this
// audience only; it comes in a header of its own, because the proxy of the API server removes
// Authorization.
const (
	LogReader      = "refit-log-reader"
	LogAudience    = "refit-logs"
	LogTokenHeader = "X-Refit-Token"
)

// Bounds of an answer with log lines.
const (
	DefaultLogLines = 1000
	MaxLogLines     = 10_000
	// MaxLogBytes is for an answer of the controller that ends; one that follows has no end.
	MaxLogBytes = 1 << 20
)

// maxLogAnswers is how many answers with log lines an agent gives at a time.
const maxLogAnswers = 4

// LogQuery says which lines of an agent's log are wanted.
type LogQuery struct {
	// Lines at most: the last ones.
	Lines int
	// Since is how old the lines may be, in whole seconds; 0 for any age.
	Since time.Duration
	// Follow sends new lines until the client leaves.
	Follow bool
}

// Values are the query's parameters.
func (q LogQuery) Values() url.Values {
	return url.Values{"lines": {strconv.Itoa(q.Lines)}, "since": {strconv.Itoa(int(q.Since / time.Second))}, "follow": {strconv.FormatBool(q.Follow)}}
}

// ParseLogQuery reads parameters. What is missing or out of bounds has its default.
func ParseLogQuery(v url.Values) LogQuery {
	lines, _ := strconv.Atoi(v.Get("lines"))
	since, _ := strconv.Atoi(v.Get("since"))
	if lines <= 0 || lines > MaxLogLines {
		lines = DefaultLogLines
	}
	return LogQuery{Lines: lines, Since: time.Duration(max(0, min(since, maxLogAge))) * time.Second, Follow: v.Get("follow") == "true"}
}

// maxLogAge is in seconds, some 30 years.
const maxLogAge = 1_000_000_000

// Journal writes lines of this node's log to w, without secrets.
type Journal func(ctx context.Context, q LogQuery, w io.Writer) error

// LogsPath of an agent.
const LogsPath = "/v1/logs"

// WithLogs answers GET /v1/logs for keys that may read the log, and leaves other requests to next.
func WithLogs(next http.Handler, mayRead func(publicKey string) bool, journal Journal) http.Handler {
	slots := make(chan struct{}, maxLogAnswers)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != LogsPath {
			next.ServeHTTP(w, r)
			return
		}
		if r.TLS == nil || !acceptable(r.TLS.PeerCertificates, mayRead) {
			http.Error(w, "not the controller", http.StatusForbidden)
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			http.Error(w, "too many readers of this node's log: try again when one has left", http.StatusTooManyRequests)
			return
		}
		s := &logStream{w: w, rc: http.NewResponseController(w)}
		// The deadline of a request does not apply to a stream.
		_ = s.rc.SetReadDeadline(time.Time{})
		if err := journal(r.Context(), ParseLogQuery(r.URL.Query()), s); err != nil && !s.started {
			http.Error(w, "journalctl: "+err.Error(), http.StatusInternalServerError)
		}
	})
}

// logStream sends each write at once.
type logStream struct {
	w       io.Writer
	rc      *http.ResponseController
	started bool
}

func (s *logStream) Write(p []byte) (int, error) {
	s.started = true
	_ = s.rc.SetWriteDeadline(time.Now().Add(sendTime))
	n, err := s.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, s.rc.Flush()
}

// Logs fetches lines of the peer's log; the caller closes the body. ErrNotHere if the peer is too
// old to have them.
func (c *Client) Logs(ctx context.Context, q LogQuery) (io.ReadCloser, error) {
	resp, err := c.request(ctx, LogsPath+"?"+q.Values().Encode())
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
