package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bundlefiles"
	"github.com/refit-dev/refit/internal/peerapi"
)

const (
	// nodeLogsPattern is what the server answers, nodeLogsPath what a reader must be allowed to
	// get, as a nonResourceURL of a ClusterRole.
	nodeLogsPattern = "GET /logs/{node}"
	nodeLogsPath    = "/refit/logs"
	// maxLogReaders bounds the open answers of one controller.
	maxLogReaders = 16
	// maxLogRead is how much of an agent's answer is read for its last bytes.
	maxLogRead = 64 << 20
	// findAgentTime bounds the reads that find a node's agent.
	findAgentTime = 10 * time.Second
)

// nodeLogs passes the log of a node's agent on to a reader whom the API server permits it. The
// agent gives its log to the controller only.
type nodeLogs struct {
	client client.Client
	id     *peerapi.Identity
	log    logr.Logger
	slots  chan struct{}
}

// ServeHTTP answers GET /logs/{node} with lines of the log.
func (l *nodeLogs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := peerapi.ParseLogQuery(r.URL.Query())
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	default:
		http.Error(w, "too many readers of logs: try again when one has left", http.StatusTooManyRequests)
		return
	}
	node := r.PathValue("node")
	agent, code, err := l.findAgent(r.Context(), node)
	if err != nil {
		http.Error(w, err.Error(), code)
		return
	}
	c := peerapi.NewClient(l.id, agent)
	defer c.Close()
	body, err := c.Logs(r.Context(), q)
	if errors.Is(err, peerapi.ErrNotHere) {
		http.Error(w, fmt.Sprintf("the agent of node %s is older than this controller and gives no log: update it with refit install --ssh %s, or run journalctl -u refit-agent on the node", node, node), http.StatusNotImplemented)
		return
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("the agent of node %s did not give its log: %v; run journalctl -u refit-agent on the node", node, err), http.StatusBadGateway)
		return
	}
	defer body.Close()
	l.log.Info("log of a node read", "node", node, "follow", q.Follow)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if q.Follow {
		passOn(w, body)
		return
	}
	end := &lastBytes{most: peerapi.MaxLogBytes}
	if _, err := io.Copy(end, io.LimitReader(body, maxLogRead)); err != nil {
		http.Error(w, fmt.Sprintf("the log of node %s broke off: %v; try again", node, err), http.StatusBadGateway)
		return
	}
	_, _ = w.Write(end.lines()) // a reader that left needs no answer
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	most int
	data []byte
	// cut: something before data was dropped.
	cut bool
}

func (l *lastBytes) Write(p []byte) (int, error) {
	l.data = append(l.data, p...)
	if len(l.data) > 2*l.most {
		l.data, l.cut = append(l.data[:0], l.data[len(l.data)-l.most:]...), true
	}
	return len(p), nil
}

// lines are the last whole lines that fit.
func (l *lastBytes) lines() []byte {
	if len(l.data) > l.most {
		l.data, l.cut = l.data[len(l.data)-l.most:], true
	}
	if !l.cut {
		return l.data
	}
	return l.data[bytes.IndexByte(l.data, '\n')+1:]
}

// findAgent returns the agent of a node, or the status code and the reason why there is none.
func (l *nodeLogs) findAgent(ctx context.Context, name string) (agent peerapi.Peer, code int, err error) {
	ctx, cancel := context.WithTimeout(ctx, findAgentTime)
	defer cancel()
	var node corev1.Node
	err = l.client.Get(ctx, client.ObjectKey{Name: name}, &node)
	var nu v1alpha1.NodeUpdate
	if err == nil {
		err = l.client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NodesNamespace, Name: name}, &nu)
	}
	switch {
	case apierrors.IsNotFound(err):
		return agent, http.StatusNotFound, fmt.Errorf("there is no node %.253q with an agent: kubectl get nodes lists the nodes", name)
	case err != nil:
		return agent, http.StatusServiceUnavailable, errors.New("the API server did not answer: try again")
	case nu.Status.Agent == nil || nu.Status.Agent.PublicKey == "":
		return agent, http.StatusNotFound, fmt.Errorf("the agent of node %s has not reported yet: run refit-agent install on it", name)
	}
	if err := bundlefiles.CheckAddress(&node, nu.Status.Agent.Address); err != nil {
		return agent, http.StatusBadGateway, fmt.Errorf("agent of node %s: %w", name, err)
	}
	return peerapi.Peer{Name: name, Address: nu.Status.Agent.Address, PublicKey: nu.Status.Agent.PublicKey}, 0, nil
}

// passOn sends every part of the body at once: a reader follows a log.
func passOn(w http.ResponseWriter, body io.Reader) {
	flush := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return // the reader left
			}
			_ = flush.Flush() // without it the reader only waits longer
		}
		if err != nil {
			return
		}
	}
}
