package bootstreams_test

import (
	"context"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/controller/bootstreams"
	"github.com/refit-dev/refit/internal/outbound"
)

func list(release string) string {
	return fmt.Sprintf(`{"apiVersion":"refit.dev/boot-images/v1","release":"%s","images":[{"architecture":"amd64","platform":"aws","region":"r","version":"9.6.20251023-0","attributes":{"image":"ami-%s"}}]}`, release, release)
}

// site is a web server with a stream, and an API that stores the status.
type site struct {
	t        *testing.T
	c        client.Client
	l        *bootstreams.Loader
	now      time.Time
	server   *httptest.Server
	answer   string
	code     int
	requests int
}

func newSite(t *testing.T) *site {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &site{t: t, now: time.Now().Truncate(time.Second), answer: list("1.36.3"), code: http.StatusOK}
	s.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests++
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://127.0.0.1/x", http.StatusFound)
			return
		}
		w.WriteHeader(s.code)
		_, _ = w.Write([]byte(s.answer))
	}))
	t.Cleanup(s.server.Close)
	s.c = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.BootImageStream{}).Build()
	s.l = &bootstreams.Loader{Client: s.c, Live: s.c, Now: func() time.Time { return s.now }, Servers: outbound.New(outbound.ServerFlag, "127.0.0.1")}
	return s
}

func (s *site) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw}))
}

// load looks once and returns the stream and what its condition says.
func (s *site) load() (*bootstreams.Stream, string) {
	s.t.Helper()
	var l v1alpha1.BootImageStreamList
	if err := s.c.List(context.Background(), &l); err != nil {
		s.t.Fatal(err)
	}
	got, err := s.l.Load(context.Background(), l.Items, "v1.36.3")
	if err != nil {
		s.t.Fatal(err)
	}
	return got["s"], s.condition(v1alpha1.ConditionReady)
}

// condition as "status reason message".
func (s *site) condition(kind string) string {
	s.t.Helper()
	o := &v1alpha1.BootImageStream{}
	if err := s.c.Get(context.Background(), client.ObjectKey{Name: "s"}, o); err != nil {
		s.t.Fatal(err)
	}
	c := meta.FindStatusCondition(o.Status.Conditions, kind)
	if c == nil {
		s.t.Fatalf("no condition %s", kind)
	}
	return fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
}

func (s *site) create(u v1alpha1.StreamURL) {
	s.t.Helper()
	u.EveryMinutes = 60
	if err := s.c.Create(context.Background(), &v1alpha1.BootImageStream{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "u1", Generation: 1}, Spec: v1alpha1.BootImageStreamSpec{URL: &u}}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) contents() int {
	s.t.Helper()
	var l v1alpha1.ContentList
	if err := s.c.List(context.Background(), &l); err != nil {
		s.t.Fatal(err)
	}
	return len(l.Items)
}

// A stream that was fetched is there when its address is not any more, and is not
// polled more often than configured.
func TestFetchedStreamOutlivesItsAddress(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.create(v1alpha1.StreamURL{URL: s.server.URL, CABundle: s.ca()})
	got, said := s.load()
	if got == nil || !strings.HasPrefix(said, "True AsExpected 1 images for release 1.36.3") || s.contents() != 1 {
		t.Fatal(said)
	}
	s.load()
	if s.requests != 1 {
		t.Errorf("%d requests within the hour", s.requests)
	}
	s.code, s.now = http.StatusInternalServerError, s.now.Add(2*time.Hour)
	if got, said = s.load(); got == nil || s.requests != 2 || !strings.HasPrefix(said, "True AsExpected 1 images for release 1.36.3; the fetch failed 1 of 3 times since") || !strings.Contains(said, "500") {
		t.Errorf("it is kept: %s, %d requests", said, s.requests)
	}
	if said = s.condition(v1alpha1.ConditionStalled); !strings.HasPrefix(said, "False AsExpected") {
		t.Errorf("one failed fetch: %s", said)
	}
	s.code, s.answer, s.now = http.StatusOK, "<html>", s.now.Add(2*time.Hour)
	if got, said = s.load(); got == nil || got.Release != "1.36.3" || !strings.HasPrefix(said, "True AsExpected") {
		t.Errorf("what cannot be read replaces nothing: %s", said)
	}
	if said = s.condition(v1alpha1.ConditionStalled); !strings.HasPrefix(said, "True StreamNotFetched the fetch failed since") {
		t.Errorf("fetches that failed for two hours: %s", said)
	}
	s.answer, s.now = list("1.36.4"), s.now.Add(2*time.Hour)
	if got, said = s.load(); got == nil || got.Release != "1.36.4" || strings.Contains(said, "failed") {
		t.Errorf("a new one is taken: %s %+v", said, got)
	}
	if said = s.condition(v1alpha1.ConditionStalled); !strings.HasPrefix(said, "False AsExpected") {
		t.Error(said)
	}
	s.now = s.now.Add(time.Hour + time.Minute)
	s.load()
	if n := s.contents(); n != 1 {
		t.Errorf("%d Contents: unreferenced ones must be deleted", n)
	}
}

// While a ConfigMap cannot be read once or twice, the stream that was read last is used. A third
// failure, a restarted controller without a copy, and another spec count at once.
func TestFailedChecksPersist(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cm := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "os", Name: "images"}, Data: map[string]string{"k": list("1.36.3")}}
	}
	s.spec(v1alpha1.BootImageStreamSpec{ConfigMap: &v1alpha1.StreamConfigMap{Namespace: "os", Name: "images", Key: "k"}})
	is := func(when string, used bool, want string) {
		t.Helper()
		if got, said := s.load(); (got != nil) != used || !strings.HasPrefix(said, want) || (got != nil && got.Release != "1.36.3") {
			t.Errorf("%s: used %v, %s", when, got != nil, said)
		}
	}
	is("before it was read", false, `False StreamUnusable ConfigMap os/images: configmaps "images" not found`)
	put := func(delete bool) {
		t.Helper()
		err := s.c.Create(context.Background(), cm())
		if delete {
			err = s.c.Delete(context.Background(), cm())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(false)
	is("at first", true, "True AsExpected 1 images for release 1.36.3")
	put(true)
	at := s.now.UTC().Format(time.RFC3339)
	is("one failure", true, "True AsExpected 1 images for release 1.36.3; the check failed 1 of 3 times since "+at+": ConfigMap os/images")
	is("at the same time", true, "True AsExpected 1 images for release 1.36.3; the check failed 1 of 3 times")
	s.now = s.now.Add(30 * time.Second)
	is("two failures", true, "True AsExpected 1 images for release 1.36.3; the check failed 2 of 3 times since "+at)
	s.now = s.now.Add(30 * time.Second)
	is("three failures", false, "False StreamUnusable ConfigMap os/images")
	if said := s.condition(v1alpha1.ConditionStalled); !strings.HasPrefix(said, "True StreamUnusable the check failed since "+at) {
		t.Error(said)
	}
	put(false)
	is("it is there again", true, "True AsExpected 1 images for release 1.36.3")
	if said := s.condition(v1alpha1.ConditionStalled); !strings.HasPrefix(said, "False AsExpected") {
		t.Error(said)
	}
	put(true)
	s.change(func(b *v1alpha1.BootImageStreamSpec) { b.ConfigMap.Key = "other" })
	is("of another spec", false, "False StreamUnusable ConfigMap os/images")
	put(false)
	s.change(func(b *v1alpha1.BootImageStreamSpec) { b.ConfigMap.Key = "k" })
	is("it is there again", true, "True AsExpected")
	put(true)
	s.l = &bootstreams.Loader{Client: s.c, Live: s.c, Now: s.l.Now}
	is("without a copy", false, "False StreamUnusable ConfigMap os/images")
}

// What the platforms report of images stands in the condition.
func TestAnswersOfPlatforms(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.answer = strings.Replace(list("1.36.3"), `"version"`, `"unavailable":"aws does not have it","version"`, 1)
	s.create(v1alpha1.StreamURL{URL: s.server.URL, CABundle: s.ca()})
	if got, said := s.load(); got == nil || !strings.HasPrefix(said, "True") || !strings.Contains(said, "platforms report: architecture amd64, platform aws, region r: aws does not have it") {
		t.Error(said)
	}
}

func TestWhatIsNotFetched(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*site, *v1alpha1.StreamURL)
		want   string
	}{
		"from an untrusted server": {func(_ *site, u *v1alpha1.StreamURL) { u.CABundle = "" }, "certificate"},
		"with a CA that is none":   {func(_ *site, u *v1alpha1.StreamURL) { u.CABundle = "x" }, "caBundle holds no certificate"},
		"with another sum":         {func(_ *site, u *v1alpha1.StreamURL) { u.SHA256 = strings.Repeat("0", 64) }, ", not 0000"},
		"when the server says no":  {func(s *site, _ *v1alpha1.StreamURL) { s.code = http.StatusForbidden }, "403"},
		"away from https":          {func(_ *site, u *v1alpha1.StreamURL) { u.URL += "/away" }, "redirects to a URL without https"},
		"more than is kept":        {func(s *site, _ *v1alpha1.StreamURL) { s.answer = strings.Repeat("x", 900_001) }, "more than 900000 bytes"},
		"something else":           {func(s *site, _ *v1alpha1.StreamURL) { s.answer = "{}" }, "neither CoreOS stream metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			u := v1alpha1.StreamURL{URL: s.server.URL, CABundle: s.ca()}
			tc.change(s, &u)
			s.create(u)
			got, said := s.load()
			if got != nil || !strings.HasPrefix(said, "False StreamUnusable") || !strings.Contains(said, tc.want) || s.contents() != 0 {
				t.Errorf("%s, want %q", said, tc.want)
			}
			before := s.requests
			s.load()
			if s.requests != before {
				t.Error("a fetch that failed rests")
			}
		})
	}
	s := newSite(t)
	sum := sha256.Sum256([]byte(s.answer))
	s.create(v1alpha1.StreamURL{URL: s.server.URL, CABundle: s.ca(), SHA256: fmt.Sprintf("%x", sum)})
	if got, said := s.load(); got == nil {
		t.Error("with the right sum:", said)
	}
}

// One gate: a stream is for its own release and later ones.
func TestFor(t *testing.T) {
	t.Parallel()
	all := map[string]*bootstreams.Stream{"a": {Name: "a", Kubernetes: "1.35.4"}, "b": {Name: "b", Kubernetes: "1.36.3"}, "c": {Name: "c"}}
	for version, want := range map[string]string{"v1.36.3": "b", "1.37.0": "b", "v1.36.2": "a", "v1.35.3": "", "": "", "next": ""} {
		got := ""
		if s := bootstreams.Newest(all, []string{"a", "b", "c", "nobody"}, version); s != nil {
			got = s.Name
		}
		if got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
	if s := bootstreams.Newest(all, []string{"a"}, "v1.36.3"); s == nil || s.Name != "a" {
		t.Error("only what the policy names")
	}
}
