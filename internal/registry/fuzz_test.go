package registry

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// answers is a registry that says the same to every question but the first.
type answers struct {
	status                       int
	link, challenge, after, body string
	asked                        int
	hosts                        map[string]bool
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.asked++
	a.hosts[r.URL.Host] = true
	resp := &http.Response{StatusCode: a.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(a.body)), Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	for k, v := range map[string]string{"Link": a.link, "Www-Authenticate": a.challenge, "Retry-After": a.after, "Location": a.link} {
		if v != "" {
			resp.Header.Set(k, v)
		}
	}
	return resp, nil
}

// For any answers of a registry, the number of requests is bounded, a page is one of the
// same repository, and a wait ends.
func FuzzAnswers(f *testing.F) {
	f.Add(200, `</v2/a/tags/list?last=b>; rel="next"`, "", "", `{"tags":["a","b"]}`)
	f.Add(401, "", `Bearer realm="https://registry.example/token",service="s",scope="repository:a:pull"`, "", `{"token":"t"}`)
	f.Add(429, "", "", "999999999999", "")
	f.Add(200, `<https://169.254.169.254/?x=1>; rel=next`, `Basic realm="x"`, "Fri, 20 Nov 2026 11:00:00 GMT", `{"tags":[]}`)
	f.Add(200, "", "", "", `{"artifactType":"x","config":{"digest":"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","size":9}}`)
	f.Add(206, "", "", "", "0123456789")
	f.Add(301, `/v2/a/tags/list?last=b`, "", "", "")
	now := time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, status int, link, challenge, after, body string) {
		if status < 100 || status > 599 {
			return
		}
		if next := nextPage(link); next != "" && !strings.HasPrefix(next, "tags/list?") {
			t.Fatalf("next page %q", next)
		}
		if d := retryAfter(http.Header{"Retry-After": {after}}, now); d < 0 {
			t.Fatalf("wait %s", d)
		}
		a := &answers{status: status, link: link, challenge: challenge, after: after, body: body, hosts: map[string]bool{}}
		p := NewPoller(a, func() time.Time { return now })
		at := Place{Repository: "registry.example/a"}
		_, _ = p.Tags(context.Background(), at, 0)
		_, _ = p.Digest(context.Background(), at, "b", 0)
		_, _ = p.Describe(context.Background(), at, "sha256:"+strings.Repeat("a", 64))
		const most = 100
		if b, err := p.Config(context.Background(), at, "b", "x", most); len(b) > most || err == nil && len(b) == 0 {
			t.Fatalf("configuration of %d bytes: %v", len(b), err)
		}
		if r, err := p.OpenPart(context.Background(), at, Part{Digest: "sha256:" + strings.Repeat("a", 64), Length: 10}); err == nil {
			if b, err := io.ReadAll(r); len(b) > 10 || err == nil && len(b) < 10 {
				t.Fatalf("part of %d bytes: %v", len(b), err)
			}
			_ = r.Close()
		}
		if a.asked > 2000 {
			t.Fatalf("%d questions", a.asked)
		}
	})
}
