package bundlewriter

import (
	"bytes"
	"context"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// openObjects makes one payload of manifests.
func (in *inputs) openObjects(path string) error {
	text, err := readObjects(path)
	if err != nil {
		return inputf("resources: %w", err)
	}
	in.payloads = append(in.payloads, payloadRoot{name: bundle.PayloadResources, mode: 0o644, digest: bundle.DigestOf(text), size: int64(len(text)),
		store: textStore{path, text}, explicit: true})
	return nil
}

// textStore is a payload that was put together.
type textStore struct {
	from string
	data []byte
}

func (s textStore) String() string { return s.from }

func (s textStore) Open(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(s.data)), nil
}
