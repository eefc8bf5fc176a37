package imagekeeper

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/refit-dev/refit/internal/fsutil/statefile"
)

// Any bytes on the disk as the record of pins are read, or count as missing with a problem
// in the status; the agent starts.
func FuzzPins(f *testing.F) {
	f.Add([]byte(`{"r.example/a:1 sha256:1":["a","b"]}`))
	f.Add(make([]byte, 64))
	f.Add([]byte("null"))
	f.Add([]byte(`{"a":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "pins.json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		damaged := false
		k := NewKeeper(nil, dir, func(statefile.Problem) { damaged = true })
		if k.own == nil || damaged && (len(k.own) > 0 || !k.lost) {
			t.Fatalf("%q: %+v, damaged %t", data, k.own, damaged)
		}
		if !damaged { // a record that was read can be written and read again
			if err := k.saveRecord(); err != nil {
				t.Fatal(err)
			}
			if again := NewKeeper(nil, dir, func(p statefile.Problem) { t.Fatalf("%+v", p) }); len(again.own) != len(k.own) {
				t.Fatalf("%+v, then %+v", k.own, again.own)
			}
		}
	})
}
