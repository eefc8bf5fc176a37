package programs

import (
	"archive/tar"
	"bytes"
	"strings"
	"testing"
)

// For any tar of CNI plugins, a name is that of a file in one directory.
func FuzzPlugins(f *testing.F) {
	for _, name := range []string{"bridge", "./host-local", "../escaped", "/etc/passwd", "a/b", ".hidden", ".."} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: 3, Typeflag: tar.TypeReg}); err != nil {
			f.Fatal(err)
		}
		if _, err := w.Write([]byte("abc")); err != nil {
			f.Fatal(err)
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n := 0
		_ = eachEntry(tar.NewReader(bytes.NewReader(data)), func(name string, _ []byte) error {
			if n++; n > maxPlugins || name == "" || strings.ContainsAny(name, "/") || strings.HasPrefix(name, ".") {
				t.Fatalf("plugin %d is %q", n, name)
			}
			return nil
		})
	})
}
