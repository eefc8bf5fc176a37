package fsutil

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state", "x.json")
	var got map[string]int
	if ok, err := ReadJSON(path, &got); ok || err != nil {
		t.Errorf("a file that is not there: %t, %v", ok, err)
	}
	if err := WriteJSON(path, map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	if ok, err := ReadJSON(path, &got); !ok || err != nil || got["a"] != 1 {
		t.Errorf("%v, %t, %v", got, ok, err)
	}
	if err := WriteJSON(path, func() {}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("what is no JSON: %v", err)
	}
	if err := os.WriteFile(path, []byte(`{"a":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, err := ReadJSON(path, &got); ok || err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a damaged file: %t, %v", ok, err)
	}
}
