package cloud

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ulikunitz/xz"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
)

func sumOf(data string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(data))) }

// testFiles is a directory of files, and a server that breaks off after some bytes.
type testFiles struct {
	Files
	sum    string
	server *httptest.Server
	asked  []string
	most   int64
}

func newFiles(t *testing.T, data string) *testFiles {
	t.Helper()
	f := &testFiles{sum: sumOf(data), most: 1 << 30}
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked = append(f.asked, r.Header.Get("Range"))
		http.ServeContent(&short{w, f.most}, r, "", time.Time{}, strings.NewReader(data))
	}))
	t.Cleanup(f.server.Close)
	f.Files = Files{Dir: t.TempDir(), Client: f.server.Client()}
	f.write(t, "a.ova", data)
	return f
}

func (f *testFiles) write(t *testing.T, name, data string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.Dir, name), []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

// short ends an answer after some bytes.
type short struct {
	http.ResponseWriter
	left int64
}

func (s *short) Write(p []byte) (int, error) {
	if s.left -= int64(len(p)); s.left < 0 {
		panic(http.ErrAbortHandler)
	}
	return s.ResponseWriter.Write(p)
}

// A download that breaks off resumes at its last byte.
func TestDownloadResumes(t *testing.T) {
	data := strings.Repeat("0123456789abcdef", 20_000)
	f := newFiles(t, data)
	want := bootstream.File{Location: f.server.URL + "/b.ova", SHA256: f.sum}
	f.most = 100_000
	for range 3 {
		if _, err := f.Get(context.Background(), want); err == nil {
			t.Fatal("a part is taken for the file")
		}
	}
	f.most = 1 << 30
	p, err := f.Get(context.Background(), want)
	if err != nil || p.Size != int64(len(data)) || p.SHA256 != f.sum {
		t.Fatal(p, err)
	}
	last := f.asked[len(f.asked)-1]
	if f.asked[0] != "" || !strings.HasPrefix(last, "bytes=") || last <= "bytes=200000-" {
		t.Error("the requests were", f.asked)
	}
	n := len(f.asked)
	if _, err := f.Get(context.Background(), want); err != nil || len(f.asked) != n {
		t.Error("it is downloaded again", err)
	}
}

func TestFilesThatAreNotUsed(t *testing.T) {
	f := newFiles(t, "a disk")
	get := func(file bootstream.File) string {
		p, err := f.Get(context.Background(), file)
		if err == nil {
			t.Errorf("%+v", p)
			return ""
		}
		return err.Error()
	}
	if got := get(bootstream.File{Location: "https://example.test/a.ova", SHA256: sumOf("another")}); !strings.Contains(got, "get the file again") {
		t.Error(got)
	}
	// The server has other bytes: they are not resumed next time.
	if got := get(bootstream.File{Location: f.server.URL + "/c.ova", SHA256: sumOf("another")}); !strings.Contains(got, "the stream has") {
		t.Error(got)
	}
	if left, _ := filepath.Glob(filepath.Join(f.Dir, "*.part")); len(left) != 0 {
		t.Error(left)
	}
	f.Client = nil
	if got := get(bootstream.File{Location: f.server.URL + "/d.ova", SHA256: f.sum}); !strings.Contains(got, "put it there") {
		t.Error(got)
	}
	f.write(t, "e.qcow2.gz", "this is no gzip file")
	if got := get(bootstream.File{Location: "x/e.qcow2.gz", SHA256: sumOf("this is no gzip file")}); !strings.Contains(got, "gzip") {
		t.Error(got)
	}
	f.Dir = ""
	if got := get(bootstream.File{SHA256: f.sum}); !strings.Contains(got, "no directory") {
		t.Error(got)
	}
}

// Compressed files are uncompressed, and their contents compared.
func TestUnpack(t *testing.T) {
	const disk = "a disk of some bytes"
	for suffix, pack := range map[string]func(io.Writer) io.WriteCloser{
		".gz": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		".xz": func(w io.Writer) io.WriteCloser {
			x, err := xz.NewWriter(w)
			if err != nil {
				t.Fatal(err)
			}
			return x
		},
	} {
		var b bytes.Buffer
		w := pack(&b)
		_, _ = w.Write([]byte(disk))
		_ = w.Close()
		f := newFiles(t, "")
		f.write(t, "a.qcow2"+suffix, b.String())
		file := bootstream.File{Location: "https://example.test/a.qcow2" + suffix, SHA256: sumOf(b.String()), Uncompressed: sumOf(disk)}
		p, err := f.Get(context.Background(), file)
		if err != nil || p.SHA256 != sumOf(disk) || p.Size != int64(len(disk)) {
			t.Errorf("%s: %+v %v", suffix, p, err)
		}
		file.Uncompressed = sumOf("another")
		if _, err := f.Get(context.Background(), file); err == nil || !strings.Contains(err.Error(), "of its contents") {
			t.Errorf("%s: %v", suffix, err)
		}
	}
}
