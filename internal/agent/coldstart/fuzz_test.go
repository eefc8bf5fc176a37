package coldstart

import (
	"os"
	"testing"

	"github.com/refit-dev/refit/internal/agent/agentconfig"
	"github.com/refit-dev/refit/internal/agent/desired"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// Any bytes on the disk as a drill or as the desired state are read or count as missing. A
// damaged file is set aside, so that the next start has no problem with it.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"id":"a","bootID":"b","done":true}`))
	f.Add([]byte(`{"spec":{}}`))
	f.Add(make([]byte, 64))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := agentconfig.Config{StateDir: t.TempDir(), RunDir: t.TempDir()}
		for _, name := range []string{drillFile, "want.json"} {
			if err := os.WriteFile(c.Path(name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		first := readDrill(c)
		if again := readDrill(c); again != first {
			t.Fatalf("%+v, then %+v", first, again)
		}
		noted := 0
		note := func(statefile.Problem) { noted++ }
		w := desired.ReadFile(c.Path("want.json"), note)
		if noted > 0 && w != nil {
			t.Fatalf("damaged, and read as %+v", w)
		}
		noted = 0
		if desired.ReadFile(c.Path("want.json"), note); noted > 0 {
			t.Fatal("the second start finds the same damage")
		}
	})
}
