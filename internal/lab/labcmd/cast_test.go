package labcmd

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type closer struct{ io.Writer }

func (closer) Close() error { return nil }

// broken is a full disk.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// A recording has what the screen has, with its times, as asciinema reads it.
func TestCast(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	var file, screen bytes.Buffer
	c := newCast(closer{&file}, &screen, "a title", "/home/ann/refit/bin", "/home/ann", func() time.Time { return at })
	for _, text := range []string{"$ /home/ann/refit/bin/refit plan /home/ann/x <1>\n", "/home/anne\n", "two\nlines\n"} {
		at = at.Add(1500 * time.Millisecond)
		if n, err := c.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	want := `{"version":2,"width":160,"height":45,"timestamp":1795852800,"title":"a title"}
[1.500,"o","$ bin/refit plan ~/x <1>\r\n"]
[3.000,"o","/home/anne\r\n"]
[4.500,"o","two\r\nlines\r\n"]
`
	if file.String() != want {
		t.Errorf("%s\nwant\n%s", file.String(), want)
	}
	if got := screen.String(); got != "$ /home/ann/refit/bin/refit plan /home/ann/x <1>\n/home/anne\ntwo\nlines\n" {
		t.Errorf("the screen shows %q", got)
	}
}

// A recording that cannot be written leaves the demo running, and is an error at the end.
func TestCastFails(t *testing.T) {
	t.Parallel()
	var screen bytes.Buffer
	c := newCast(closer{broken{}}, &screen, "", "/bin", "/root", time.Now)
	if _, err := c.Write([]byte("shown\n")); err != nil || screen.String() != "shown\n" {
		t.Errorf("%q, %v", screen.String(), err)
	}
	if err := c.close(); err == nil || !strings.Contains(err.Error(), "recording: no space left") {
		t.Error(err)
	}
	if _, _, err := recordTo(filepath.Join(t.TempDir(), "none", "x.cast"), &screen, ""); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	w, end, err := recordTo("", &screen, "")
	if w != &screen || err != nil || end() != nil {
		t.Errorf("without a file: %v, %v", w, err)
	}
}
