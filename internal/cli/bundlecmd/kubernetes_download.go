package bundlecmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/fsutil"
)

const (
	// downloadTries is how often a file is requested; the pauses in between start with
	// downloadPause and grow fourfold.
	downloadTries = 4
	downloadPause = 500 * time.Millisecond
	// stallTimeout ends a request whose server sends nothing.
	stallTimeout = time.Minute
	// maxRedirects of one request; maxSum bounds the answer with a checksum in bytes.
	maxRedirects = 10
	maxSum       = 4 << 10
)

// parseReleaseURL reads a URL of --kubernetes-from. A program that came over plain HTTP could
// be anyone's, and its checksum too: kubeadm runs on this computer, and all of them on nodes.
func parseReleaseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, console.UsageError(fmt.Errorf("--kubernetes-from: %w", err))
	}
	if u.Host == "" || !isProtected(u) {
		return nil, console.UsageErrorf("--kubernetes-from %s: use an https URL, because its programs run here and on nodes. Or download them into a directory, verify them, and name it", u.Redacted())
	}
	return u, nil
}

// isProtected reports whether an answer reaches refit as the server sent it.
func isProtected(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

// downloader fetches files with a published checksum into the cache.
type downloader struct {
	client *http.Client
	cache  *programCache
	out    io.Writer
	pause  time.Duration
	stall  time.Duration
}

func newDownloader(cache *programCache, out io.Writer) *downloader {
	t := http.DefaultTransport.(*http.Transport).Clone() // with the proxy of the environment
	t.ResponseHeaderTimeout = stallTimeout
	t.DisableCompression = true // checksums are those of the bytes as they are sent
	return &downloader{cache: cache, out: out, pause: downloadPause, stall: stallTimeout, client: &http.Client{Transport: t, CheckRedirect: checkRedirect}}
}

// errRedirect is in the refusal of a redirect.
var errRedirect = errors.New("that is not https, or one redirect too many")

func checkRedirect(r *http.Request, via []*http.Request) error {
	if !isProtected(r.URL) || len(via) > maxRedirects {
		return fmt.Errorf("the server redirects to %s: %w", r.URL.Redacted(), errRedirect)
	}
	return nil
}

// retryError is a failure of a download that may go away by itself.
type retryError struct{ error }

func (e retryError) Unwrap() error { return e.error }

// fetch returns the file of a URL, from the cache if its bytes are there. The server must
// publish URL.sha256. check is for people.
func (d *downloader) fetch(ctx context.Context, u *url.URL) (file, check string, err error) {
	var want *checksum
	err = d.retry(ctx, func() (err error) {
		want, err = d.fetchSum(ctx, u)
		return err
	})
	if err != nil {
		return "", "", err
	}
	file, err = d.fetchVerified(ctx, u, want)
	return file, "SHA-256 verified", err
}

// fetchVerified returns the file of a URL whose checksum is known.
func (d *downloader) fetchVerified(ctx context.Context, u *url.URL, want *checksum) (string, error) {
	dir, err := d.cache.subdir("sha256-" + want.sum)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, path.Base(u.Path))
	if have, err := fsutil.Digest(file); err == nil && have == "sha256:"+want.sum {
		return file, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	err = d.retry(ctx, func() error { return d.fetchFile(ctx, u, file, want) })
	if errors.As(err, new(retryError)) {
		err = fmt.Errorf("%w; the next run continues", err)
	}
	return file, err
}

// retry calls f, and again while its error may go away by itself.
func (d *downloader) retry(ctx context.Context, f func() error) error {
	wait := d.pause
	for try := 1; ; try++ {
		err := f()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.As(err, new(retryError)) || try == downloadTries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait *= 4
	}
}

// fetchSum returns the checksum that the server publishes for a file.
func (d *downloader) fetchSum(ctx context.Context, u *url.URL) (*checksum, error) {
	at := *u
	at.Path, at.RawPath = at.Path+".sha256", ""
	text, err := d.fetchText(ctx, &at, maxSum)
	var none *missingError
	if errors.As(err, &none) {
		return nil, missingf("%v, and files without a checksum are not used", err)
	}
	if err != nil {
		return nil, err
	}
	sum := parseSum(text, sha256.Size)
	if sum == "" {
		return nil, fmt.Errorf("%s: the server sends no SHA-256: %.60q", at.Redacted(), text)
	}
	return &checksum{"SHA-256", sum, at.Redacted()}, nil
}

// fetchText returns a small file that is not stored, *missingError if the server does not have
// it.
func (d *downloader) fetchText(ctx context.Context, u *url.URL, most int64) (string, error) {
	resp, err := d.get(ctx, u, 0)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return "", missingf("%s has no such file (%s)", u.Redacted(), resp.Status)
	default:
		return "", statusError(u, resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return "", retryError{fmt.Errorf("%s: %w", u.Redacted(), err)}
	}
	if int64(len(text)) > most {
		return "", fmt.Errorf("%s has more than the %d bytes allowed", u.Redacted(), most)
	}
	return string(text), nil
}

func (d *downloader) get(ctx context.Context, u *url.URL, from int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "refit")
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	resp, err := d.client.Do(req)
	if errors.Is(err, errRedirect) {
		return nil, err
	}
	if err != nil {
		return nil, retryError{err}
	}
	return resp, nil
}

// statusError is the error for an answer without the file.
func statusError(u *url.URL, resp *http.Response) error {
	err := fmt.Errorf("%s: the server answers %s", u.Redacted(), resp.Status)
	switch {
	case resp.StatusCode >= http.StatusInternalServerError, resp.StatusCode == http.StatusTooManyRequests,
		resp.StatusCode == http.StatusRequestedRangeNotSatisfiable: // what was there is discarded
		return retryError{err}
	}
	return err
}

var errStalled = errors.New("the server sent nothing for too long")

// fetchFile downloads a file, and continues what an earlier try left.
func (d *downloader) fetchFile(ctx context.Context, u *url.URL, file string, want *checksum) error {
	f, err := os.OpenFile(file+partialSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	have, err := io.Copy(sum, f)
	if err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != want.sum {
		if err := d.fetchRest(ctx, u, f, sum, have); err != nil {
			return err
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want.sum {
		err := sumMismatch(u.Redacted(), want, got)
		if have > 0 { // what was there may be the damaged part
			err = retryError{err}
		}
		return errors.Join(err, os.Remove(f.Name()))
	}
	mode := fs.FileMode(0o755)
	if isArchive(file) {
		mode = 0o644
	}
	return commitProgram(f, file, mode)
}

// fetchRest appends what is missing behind have bytes, or starts again if the server sends all.
func (d *downloader) fetchRest(ctx context.Context, u *url.URL, f *os.File, sum hash.Hash, have int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(d.stall, func() { cancel(errStalled) })
	defer stalled.Stop()
	resp, err := d.get(ctx, u, have) //nolint:bodyclose // closed below; the linter loses it in countingReader
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusPartialContent:
	case http.StatusOK, http.StatusRequestedRangeNotSatisfiable:
		have = 0
		sum.Reset()
		if err := restart(f); err != nil {
			return err
		}
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return statusError(u, resp)
	}
	fmt.Fprintf(d.out, "downloading %s\n", u.Redacted())
	bar := newProgress(d.out, "downloading")
	read := func(n int) { stalled.Reset(d.stall); have += int64(n); bar.set(have, have+max(0, resp.ContentLength)) }
	_, err = io.Copy(io.MultiWriter(f, sum), &countingReader{resp.Body, read})
	bar.finish(err == nil)
	if errors.Is(context.Cause(ctx), errStalled) {
		err = errStalled
	}
	if err != nil {
		return retryError{fmt.Errorf("%s: %w after %d bytes", u.Redacted(), err, have)}
	}
	return nil
}

func restart(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// countingReader reports the bytes of each read.
type countingReader struct {
	r    io.Reader
	read func(n int)
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.read(n)
	return n, err
}
