package cloud

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/ulikunitz/xz"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
)

// Payload is a verified file on this computer, uncompressed.
type Payload struct {
	Path string
	Size int64
	// SHA256 of its bytes, in hex.
	SHA256 string
}

// Open returns a reader of the file that fails at its end, if the bytes are not those that were
// verified: the file may have changed since.
func (p Payload) Open() (*CheckedReader, error) {
	f, err := os.Open(p.Path)
	if err != nil {
		return nil, err
	}
	return Check(f, p.Size, p.SHA256), nil
}

// Check returns a reader of size bytes that must have a SHA-256, in hex.
func Check(f io.ReadCloser, size int64, sum string) *CheckedReader {
	return &CheckedReader{f: f, sum: sha256.New(), want: sum, left: size}
}

// CheckedReader compares what it reads with a SHA-256. It fails before it returns the last byte.
type CheckedReader struct {
	f    io.ReadCloser
	sum  hash.Hash
	want string
	left int64
}

func (r *CheckedReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > r.left {
		p = p[:r.left]
	}
	n, err := r.f.Read(p)
	r.sum.Write(p[:n])
	r.left -= int64(n)
	if err == io.EOF && r.left > 0 {
		return n, io.ErrUnexpectedEOF
	}
	if got := hex.EncodeToString(r.sum.Sum(nil)); r.left == 0 && got != r.want {
		return 0, fmt.Errorf("the file changed while it was sent: its SHA-256 is %s, not %s", got, r.want)
	}
	return n, nil
}

// Close closes the file.
func (r *CheckedReader) Close() error { return r.f.Close() }

// Files are the files of streams on this computer.
type Files struct {
	// Dir has them: by their names (from a bundle or a person), or as refit downloaded them.
	Dir string
	// Client downloads what is missing; nil never downloads.
	Client *http.Client
}

// Get returns a file of a stream, downloaded if it is missing, verified and uncompressed.
func (d Files) Get(ctx context.Context, f bootstream.File) (Payload, error) {
	if d.Dir == "" {
		return Payload{}, errors.New("no directory for files is configured: set files")
	}
	path, err := d.find(ctx, f)
	if err != nil {
		return Payload{}, err
	}
	size, err := verify(path, f.SHA256)
	if err != nil {
		return Payload{}, err
	}
	if open := unpackers[filepath.Ext(path)]; open != nil {
		return d.unpack(path, f, open)
	}
	return Payload{Path: path, Size: size, SHA256: f.SHA256}, nil
}

// cached is the path of a file that refit itself stores. The sum in its name keeps releases
// apart; Base cannot leave the directory.
func (d Files) cached(sum, base string) string {
	return filepath.Join(d.Dir, sum[:min(16, len(sum))]+"-"+filepath.Base(base))
}

// find returns the path of a file and downloads it if it is missing.
func (d Files) find(ctx context.Context, f bootstream.File) (string, error) {
	path := d.cached(f.SHA256, f.Base())
	for _, p := range []string{path, filepath.Join(d.Dir, filepath.Base(f.Base()))} {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	if d.Client == nil || f.Location == "" {
		return "", fmt.Errorf("file %s is not in %s: put it there", f.Base(), d.Dir)
	}
	if err := d.download(ctx, f.Location, path+".part"); err != nil {
		return "", fmt.Errorf("download %s: %w", f.Location, err)
	}
	if _, err := verify(path+".part", f.SHA256); err != nil {
		_ = os.Remove(path + ".part") // it would fail again
		return "", err
	}
	return path, os.Rename(path+".part", path)
}

// download gets a file, from the byte at which an earlier download ended.
func (d Files) download(ctx context.Context, url, path string) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	have, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if have > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	resp, err := d.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := startAt(out, have, resp); err != nil {
		return err
	}
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return nil // all bytes are there; the caller compares them
	}
	if _, err := io.Copy(out, resp.Body); err != nil {
		return err
	}
	return out.Sync()
}

// startAt positions the output where the answer starts.
func startAt(out *os.File, have int64, resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusRequestedRangeNotSatisfiable:
		if have > 0 {
			return nil
		}
	case http.StatusPartialContent:
		if strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)) {
			return nil
		}
		return errors.New("the server answers with another range than it was asked for")
	case http.StatusOK: // no ranges: from the start
		if err := out.Truncate(0); err != nil {
			return err
		}
		_, err := out.Seek(0, io.SeekStart)
		return err
	}
	return fmt.Errorf("the server answers %s", resp.Status)
}

// verify compares a file with a SHA-256 and returns its size.
func verify(path, want string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	if err != nil {
		return 0, err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return 0, fmt.Errorf("%s: its SHA-256 is %s, the stream has %s: get the file again", path, got, want)
	}
	return n, nil
}

// unpackers by the end of a name.
var unpackers = map[string]func(io.Reader) (io.Reader, error){
	".gz": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	".xz": func(r io.Reader) (io.Reader, error) { return xz.NewReader(r) },
}

// unpack decompresses a verified file next to it and compares the result, if the stream has its
// SHA-256. An incomplete result of an earlier process is written anew.
func (d Files) unpack(path string, f bootstream.File, open func(io.Reader) (io.Reader, error)) (Payload, error) {
	plain := d.cached(f.SHA256, strings.TrimSuffix(filepath.Base(f.Base()), filepath.Ext(path))+".plain")
	in, err := os.Open(path)
	if err != nil {
		return Payload{}, err
	}
	defer in.Close()
	r, err := open(in)
	if err != nil {
		return Payload{}, fmt.Errorf("%s: %w", path, err)
	}
	sum := sha256.New()
	size, err := writeFile(plain, io.TeeReader(r, sum))
	if err != nil {
		return Payload{}, fmt.Errorf("decompress %s: %w", path, err)
	}
	got := hex.EncodeToString(sum.Sum(nil))
	if f.Uncompressed != "" && got != f.Uncompressed {
		_ = os.Remove(plain)
		return Payload{}, fmt.Errorf("%s: the SHA-256 of its contents is %s, the stream has %s", path, got, f.Uncompressed)
	}
	return Payload{Path: plain, Size: size, SHA256: got}, nil
}

func writeFile(path string, r io.Reader) (int64, error) {
	out, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(out, r)
	return n, errors.Join(err, out.Close())
}
