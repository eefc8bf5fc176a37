package statuspage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strings"
	"time"
)

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"clock":   clock,
	"stamp":   func(t time.Time) string { return t.Format(time.RFC3339) },
	"command": func(s string) bool { return strings.HasPrefix(s, "refit ") || strings.HasPrefix(s, "kubectl ") },
}).ParseFS(assets, "assets/*.html"))

// clock is a time for people, "" for none.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04 UTC")
}

// renderPage writes the administrator's view.
func renderPage(w io.Writer, st *state, f filter) error {
	return templates.ExecuteTemplate(w, "page.html", st.page(f))
}

// renderTechnician writes the technician's view.
func renderTechnician(w io.Writer, st *state) error {
	return templates.ExecuteTemplate(w, "technician.html", st.technician())
}

// writeStatusJSON writes the object that refit status -o json writes, in the same form.
func writeStatusJSON(w io.Writer, st *state) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(st.view)
}

const kindHTML = "text/html; charset=utf-8"

func (s *Server) writePage(w http.ResponseWriter, r *http.Request) {
	f := readFilter(r.URL.Query())
	s.write(w, r, kindHTML, func(b io.Writer, st *state) error { return renderPage(b, st, f) })
}

func (s *Server) writeTechnician(w http.ResponseWriter, r *http.Request) {
	s.write(w, r, kindHTML, renderTechnician)
}

func (s *Server) writeJSON(w http.ResponseWriter, r *http.Request) {
	s.write(w, r, "application/json", writeStatusJSON)
}

// write answers with a view of the state.
func (s *Server) write(w http.ResponseWriter, r *http.Request, kind string, render func(io.Writer, *state) error) {
	s.answer(w, r, kind, func(ctx context.Context, b io.Writer) error {
		st, err := s.snapshot(ctx)
		if err != nil {
			return err
		}
		return render(b, st)
	})
}

// answer writes all or an error, never a part of a page.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, kind string, render func(context.Context, io.Writer) error) {
	ctx, cancel := context.WithTimeout(r.Context(), requestDeadline)
	defer cancel()
	var b bytes.Buffer
	if err := render(ctx, &b); err != nil {
		s.log.Error(err, "failed to answer a browser", "path", r.URL.Path)
		http.Error(w, "the state of the cluster cannot be read now: try again; the nodes continue by themselves", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(b.Bytes()) // a browser that left needs no answer
}

// statusEvent is the data of an event of the administrator's view.
func statusEvent(st *state) (any, uint64) {
	v := &st.view
	return struct {
		Headline   string `json:"headline"`
		Colour     string `json:"colour"`
		Phase      string `json:"phase"`
		NodesDone  int    `json:"nodesDone"`
		NodesTotal int    `json:"nodesTotal"`
	}{v.Headline, v.Colour, v.Phase, v.NodesDone, v.NodesTotal}, st.mark()
}

// technicianEvent is the data of an event of the technician's view.
func technicianEvent(st *state) (any, uint64) { return st.technician(), st.mark() }

// stream sends an event when the view changes. It ends after a while, and the browser connects
// again with its token, which is then checked again.
func (s *Server) stream(event func(*state) (any, uint64)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.streams <- struct{}{}:
			defer func() { <-s.streams }()
		default:
			http.Error(w, fmt.Sprintf("%d browsers follow the page already: load the page again instead", maxStreams), http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), streamLifetime)
		defer cancel()
		w.Header().Set("Content-Type", "text/event-stream")
		c := http.NewResponseController(w)
		every := time.NewTicker(s.interval)
		defer every.Stop()
		for last := uint64(0); ; {
			sent, err := s.sendEvent(ctx, w, c, event, last)
			if err != nil {
				return // the browser left
			}
			last = sent
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
		}
	}
}

// sendEvent writes an event if the view is another, else a comment, which keeps proxies from
// closing the connection.
func (s *Server) sendEvent(ctx context.Context, w io.Writer, c *http.ResponseController, event func(*state) (any, uint64), last uint64) (uint64, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return last, err
	}
	message, mark := ": unchanged\n\n", last
	if st, err := s.snapshot(ctx); err != nil {
		message = ": the state of the cluster cannot be read now\n\n"
	} else {
		data, now := event(st)
		if now != last {
			raw, err := json.Marshal(data)
			if err != nil {
				return last, err
			}
			message, mark = fmt.Sprintf("event: status\ndata: %s\n\n", raw), now
		}
	}
	if _, err := io.WriteString(w, message); err != nil {
		return last, err
	}
	return mark, c.Flush()
}
