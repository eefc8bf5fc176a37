package agent

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

func TestSourcesOutliveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sources.json")
	s := openTransferStats(path, statefile.Ignore)
	s.Add("a", sourceBytes{Media: 1, Peers: 2})
	s.Add("b", sourceBytes{Peers: 10})
	s.Add("other", sourceBytes{Peers: 100})
	s.Save()
	if got := openTransferStats(path, statefile.Ignore).Sum([]string{"a", "b", "none"}); got != (sourceBytes{Media: 1, Peers: 12}) {
		t.Fatalf("%+v", got)
	}
}

func TestUnwanted(t *testing.T) {
	now := graceTimer{}
	if !now.Expired("x", false) {
		t.Error("without a grace time it is let go at once")
	}
	u := graceTimer{Grace: time.Hour}
	for range 2 {
		if u.Expired("x", false) {
			t.Error("let go within the grace time")
		}
	}
	u.since["x"] = time.Now().Add(-2 * time.Hour)
	if u.Expired("x", true) || u.Expired("x", false) {
		t.Error("wanted in between: the time begins anew")
	}
	u.since["x"] = time.Now().Add(-2 * time.Hour)
	if !u.Expired("x", false) {
		t.Error("never let go")
	}
}
