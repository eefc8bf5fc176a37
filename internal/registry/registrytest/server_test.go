//go:build linux

package registrytest

import (
	"net/http"
	"testing"
)

func TestServer(t *testing.T) {
	t.Parallel()
	s := Start(t)
	one := s.Push("app", Image{Version: "1.0.0"}, "1.0.0", "latest")
	if again := s.Push("app", Image{Version: "1.0.0"}); again != one {
		t.Errorf("the same words give %s and %s", one, again)
	}
	two := s.Push("app", Image{Version: "1.0.1", Platforms: []string{"linux/amd64", "linux/arm64"}}, "1.0.1")
	if two == one || s.Resolve("app", "latest") != one || s.Resolve("app", "1.0.1") != two {
		t.Error("tags point at the wrong digests")
	}
	s.Tag("app", two, "latest")
	s.Requests()
	if s.Resolve("app", "latest") != two || s.Resolve("app", "none") != "" {
		t.Error("the tag did not move")
	}
	if got := s.Requests(); len(got) != 2 || got[0] != (Request{http.MethodHead, "/v2/app/manifests/latest", "200"}) || got[1].Status != "404" {
		t.Errorf("requests: %v", got)
	}

	s.Copy("app", two, "copies/app")
	s.Tag("copies/app", two, "1")
	if s.Resolve("copies/app", "1") != two {
		t.Error("a copy has another digest")
	}

	s.Stop()
	if _, err := http.Get("http://" + s.Addr + "/v2/"); err == nil {
		t.Error("it answers after Stop")
	}
	s.Resume()
	if s.Resolve("app", "1.0.0") != one {
		t.Error("images are lost over Stop and Resume")
	}
	s.Delete("app", one)
	if s.Resolve("app", "1.0.0") != "" {
		t.Error("a deleted image still has its tag")
	}
}
