package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/opencontainers/go-digest"
)

// Part is a range of a blob: Length bytes from Offset.
type Part struct {
	Digest         string
	Offset, Length int64
}

// OpenPart opens a part of a blob. The registry must answer ranges, unless the part begins with
// the blob. The caller compares the bytes, closes the body, and ends ctx if they do not come:
// only the answer itself has a time limit. It never gets more than the part.
func (p *Poller) OpenPart(ctx context.Context, at Place, part Part) (io.ReadCloser, error) {
	host, _, _ := strings.Cut(at.Repository, "/")
	if err := p.checkBackoff(host); err != nil {
		return nil, err
	}
	if !validDigest.MatchString(part.Digest) {
		return nil, at.failure(InvalidAnswer, fmt.Errorf("%q is not a digest", part.Digest))
	}
	reading, cancel := context.WithCancel(ctx)
	resp, err := p.getPart(reading, cancel, at, part)
	if err != nil && ctx.Err() != nil { // the caller gave up: that is no fault of the registry
		cancel()
		return nil, ctx.Err()
	}
	var a *answer
	if resp != nil {
		a = &answer{status: resp.StatusCode, header: resp.Header}
		if err = at.checkPart(resp, part); err != nil {
			_ = resp.Body.Close() // the error counts
		}
	}
	p.recordAnswer(host, a, err)
	if err != nil {
		cancel()
		return nil, err
	}
	return &partBody{at: at, body: resp.Body, left: part.Length, cancel: cancel}, nil
}

// getPart requests a part; cancel ends a request without an answer.
func (p *Poller) getPart(ctx context.Context, cancel func(), at Place, part Part) (*http.Response, error) {
	c, err := p.conn(ctx, at)
	if err != nil {
		return nil, at.classify(err)
	}
	u := c.scheme + "://" + c.repo.RegistryStr() + "/v2/" + c.repo.RepositoryStr() + "/blobs/" + part.Digest
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, at.failure(InvalidAnswer, err)
	}
	req.Header = http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", part.Offset, part.Offset+part.Length-1)}, "Accept-Encoding": {"identity"}}
	late := time.AfterFunc(pollTime, cancel)
	resp, err := c.client.Do(req)
	if !late.Stop() && err != nil {
		return nil, at.failure(Unreachable, fmt.Errorf("no answer within %s", pollTime))
	}
	if err != nil {
		return nil, at.classify(err)
	}
	return resp, nil
}

// checkPart returns the error of an answer to the request for a part.
func (at Place) checkPart(resp *http.Response, part Part) error {
	switch {
	case resp.StatusCode == http.StatusPartialContent:
		// Compared, because another range would look like altered bytes.
		if got, want := resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", part.Offset); !strings.HasPrefix(got, want) {
			return at.failure(InvalidAnswer, fmt.Errorf("asked for the bytes of blob %s from %d on, it answers with %q", part.Digest, part.Offset, got))
		}
		return nil
	case resp.StatusCode == http.StatusOK && part.Offset == 0:
		return nil
	case resp.StatusCode == http.StatusOK:
		return at.failure(InvalidAnswer, errors.New("it answers no ranges of blobs"))
	case isDenied(resp.StatusCode) && resp.Request.Response != nil: // a login of the registry would not help
		return at.failure(Unreachable, fmt.Errorf("%s, to which it redirects, answers with status %d %s", resp.Request.URL.Host, resp.StatusCode, http.StatusText(resp.StatusCode)))
	case resp.StatusCode == http.StatusNotFound:
		return at.failure(BlobMissing, fmt.Errorf("it has no blob %s", part.Digest))
	}
	return at.checkStatus(&answer{status: resp.StatusCode, header: resp.Header}, "")
}

// partBody is the body of an answer; closing it ends the request. Its errors are Failures.
type partBody struct {
	at     Place
	body   io.ReadCloser
	left   int64
	cancel func()
}

func (b *partBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.body.Read(p[:min(int64(len(p)), b.left)])
	if b.left -= int64(n); err == nil || b.left == 0 {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, b.at.failure(Unreachable, fmt.Errorf("the connection ended in the middle of a blob: %w", innermost(err)))
}

func (b *partBody) Close() error {
	b.cancel()
	return b.body.Close()
}

// Config reads the configuration of an artifact that what names, a tag or a digest. The
// artifact must be of a type; a configuration of more than most bytes is refused unread.
func (p *Poller) Config(ctx context.Context, at Place, what, artifactType string, most int64) ([]byte, error) {
	top := what
	if !validDigest.MatchString(what) {
		var err error
		if top, err = p.Digest(ctx, at, what, 0); err != nil {
			return nil, err
		}
	}
	raw, err := p.readVerified(ctx, at, "manifests/", top, strings.Join(manifestTypes, ", "))
	if err != nil {
		return nil, err
	}
	var m struct {
		ArtifactType string `json:"artifactType"`
		Config       struct {
			Digest string `json:"digest"`
			Size   int64  `json:"size"`
		} `json:"config"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, at.failure(InvalidAnswer, fmt.Errorf("manifest %s is not JSON: %w", top, err))
	}
	switch {
	case m.ArtifactType != artifactType:
		return nil, at.failure(InvalidAnswer, fmt.Errorf("%.200q is of type %.100q, not %s", what, m.ArtifactType, artifactType))
	case m.Config.Size <= 0 || m.Config.Size > most:
		return nil, at.failure(InvalidAnswer, fmt.Errorf("the configuration of %.200q has %d bytes, at most %d are read", what, m.Config.Size, most))
	}
	body, err := p.OpenPart(ctx, at, Part{Digest: m.Config.Digest, Length: m.Config.Size})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	if got := digest.FromBytes(data).String(); got != m.Config.Digest {
		return nil, at.failure(InvalidAnswer, fmt.Errorf("asked for blob %s it answers with %s", m.Config.Digest, got))
	}
	return data, nil
}

// ParseReference splits the reference of an artifact into its repository, with the registry,
// and its tag or digest.
func ParseReference(reference string) (repository, what string, err error) {
	ref, err := name.ParseReference(reference, name.StrictValidation)
	if err != nil {
		return "", "", fmt.Errorf("reference %q: want REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST: %w", reference, err)
	}
	return ref.Context().Name(), ref.Identifier(), nil
}
