package registry

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// A listing has a total limit, for any content of its pages.
func TestAListingHasATotal(t *testing.T) {
	for name, page := range map[string]string{
		"long tags": `{"tags":["` + strings.Repeat("a", 4<<20) + `"]}`,
		"many tags": `{"tags":["a"` + strings.Repeat(`,""`, 1<<20) + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var pages atomic.Int64
			reg := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v2/" {
					return
				}
				w.Header().Set("Link", fmt.Sprintf(`</v2/app/tags/list?last=%d>; rel="next"`, pages.Add(1)))
				_, _ = w.Write([]byte(page))
			}))
			defer reg.Close()
			over := &http.Transport{}
			defer over.CloseIdleConnections()
			_, err := NewPoller(over, newClock().Now).Tags(t.Context(), Place{Repository: strings.TrimPrefix(reg.URL, "http://") + "/app", Insecure: true}, 0)
			if kindOf(err) != InvalidAnswer || !strings.Contains(err.Error(), "list of tags") {
				t.Errorf("got %v", err)
			}
			if pages.Load() > 5 {
				t.Errorf("%d pages were read", pages.Load())
			}
		})
	}
}
