package statusreport

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
)

// Limits of the page on a node. Every request has a connection of its own.
const (
	maxPageConnections = 16
	pageTimeout        = 5 * time.Second
	maxPageHeader      = 8 << 10
	pageRefresh        = "10"
)

// PageAddress returns where the page listens: HOST:PORT, or HOST with the default port.
func PageAddress(configured string) (string, error) {
	host, port, err := net.SplitHostPort(configured)
	if err != nil {
		host, port = strings.Trim(configured, "[]"), strconv.Itoa(model.PortNodeStatus)
		if host == "" || strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return "", fmt.Errorf("statusPage %q is neither HOST nor HOST:PORT: %w", configured, err)
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("statusPage %q has no port from 1 to 65535", configured)
	}
	if by := model.PortUsedBy(int32(n)); by != "" {
		return "", fmt.Errorf("port %d of statusPage belongs to %s", n, by)
	}
	return net.JoinHostPort(host, port), nil
}

// ServePage answers on a listener until the context ends. names are the names, next to
// addresses, under which browsers may open the page.
func ServePage(ctx context.Context, l net.Listener, names []string, current func() NodeStatus) error {
	srv := &http.Server{Handler: pageHandler(names, current), ReadTimeout: pageTimeout, ReadHeaderTimeout: pageTimeout, WriteTimeout: pageTimeout,
		IdleTimeout: pageTimeout, MaxHeaderBytes: maxPageHeader, ErrorLog: log.New(io.Discard, "", 0)}
	srv.SetKeepAlivesEnabled(false)
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	err := srv.Serve(netutil.LimitListener(l, maxPageConnections))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// pageHandler answers two paths. The page of another site cannot read them over a name that it
// points to this machine.
func pageHandler(names []string, current func() NodeStatus) http.Handler {
	if name, err := os.Hostname(); err == nil {
		names = append([]string{name, "localhost"}, names...)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /technician", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, pageHTML(current().Public())) // a browser that left needs no answer
	})
	mux.HandleFunc("GET /api/status", func(w http.ResponseWriter, _ *http.Request) {
		b, err := json.MarshalIndent(current().Public(), "", "  ")
		if err != nil {
			http.Error(w, "the status cannot be encoded", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(b, '\n'))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !isOwnHost(r.Host, names) {
			http.Error(w, "open this page by the address of the machine or by its name", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func isOwnHost(host string, names []string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if net.ParseIP(strings.Trim(host, "[]")) != nil {
		return true
	}
	for _, n := range names {
		if n != "" && strings.EqualFold(host, n) {
			return true
		}
	}
	return false
}

// pageStyle is the part of the controller's style sheet that this page needs.
const pageStyle = `:root{color-scheme:light dark;--bg:#f7f8fa;--card:#fff;--ink:#16202c;--dim:#4f5c6a;--fill:#e4eaf2;--green:#157344;--blue:#1a5fd0;--yellow:#8a5a00;--red:#b92a23}
@media (prefers-color-scheme:dark){:root{--bg:#0f1419;--card:#171e26;--ink:#e6ebf1;--dim:#9eabba;--fill:#22303f;--green:#3fb97a;--blue:#6ba5ff;--yellow:#d6a23a;--red:#ff7a70}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{min-height:100vh;padding:1.25rem;display:grid;place-content:center;justify-items:center;text-align:center;gap:1.25rem;border-top:1.5rem solid var(--c)}
.green{--c:var(--green)}.blue{--c:var(--blue)}.yellow{--c:var(--yellow)}.red{--c:var(--red)}
.dot{width:8rem;height:8rem;border-radius:50%;background:var(--c);display:grid;place-content:center;color:var(--card);font-size:4.5rem;font-weight:700;line-height:1}
h1{font-size:clamp(1.75rem,5vw,3rem);line-height:1.2;max-width:24ch;margin:0;overflow-wrap:anywhere}p{font-size:1.4rem;margin:0;overflow-wrap:anywhere}
progress{appearance:none;width:min(32rem,85vw);height:1.25rem;border:0;border-radius:99px;overflow:hidden;background:var(--fill);color:var(--c)}
progress::-webkit-progress-bar{background:var(--fill)}progress::-webkit-progress-value{background:var(--c)}progress::-moz-progress-bar{background:var(--c)}
.medium{font-weight:600;border:2px solid var(--c);border-radius:8px;padding:.5rem 1.25rem}.small{font-size:1rem;color:var(--dim)}`

// pagePolicy lets the browser use that style and load nothing.
var pagePolicy = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// pageHTML writes the page by hand: the packages for templates would make the agent larger by a
// third. Every text is escaped.
func pageHTML(n NodeStatus) string {
	var b strings.Builder
	put := func(format string, texts ...string) {
		escaped := make([]any, 0, len(texts))
		for _, t := range texts {
			escaped = append(escaped, html.EscapeString(t))
		}
		fmt.Fprintf(&b, format+"\n", escaped...)
	}
	put(`<!doctype html>`)
	put(`<html lang="en">`)
	put(`<head>`)
	put(`<meta charset="utf-8">`)
	put(`<meta name="viewport" content="width=device-width, initial-scale=1">`)
	put(`<meta http-equiv="refresh" content="%s">`, pageRefresh)
	put(`<title>%s - refit</title>`, n.Sentence)
	b.WriteString("<style>" + pageStyle + "</style>\n")
	put(`</head>`)
	put(`<body>`)
	put(`<main class="%s">`, n.Colour)
	put(`<div class="dot" aria-hidden="true">%s</div>`, explain.Signs[n.Colour])
	put(`<div role="status"><h1>%s</h1></div>`, n.Sentence)
	if n.Progress != "" {
		percent := strconv.Itoa(n.Percent)
		put(`<progress max="100" value="%s" aria-label="%s">%s%%</progress>`, percent, n.Progress, percent)
		put(`<p>%s: %s%%</p>`, n.Progress, percent)
	}
	put(`<p class="medium">%s</p>`, n.mediumLine())
	if n.Step != "" {
		put(`<p>Step: %s</p>`, n.stepLine())
	}
	put(`<p class="small">Machine %s. API server: %s.</p>`, orUnknown(n.Node), n.apiLine())
	put(`<p class="small">Shown at %s</p>`, stamp(n.ReadAt))
	put(`</main>`)
	put(`</body>`)
	put(`</html>`)
	return b.String()
}
