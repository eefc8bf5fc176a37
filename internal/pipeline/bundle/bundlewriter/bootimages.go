package bundlewriter

import (
	"context"
	"io"
	"os"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// openStream takes a stream of boot images, which is read here as on the site.
func (in *inputs) openStream(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return inputf("boot images: %w", err)
	}
	if _, err := bootstream.Parse(data); err != nil {
		return inputf("boot images: %s: %w", path, err)
	}
	in.payloads = append(in.payloads, payloadRoot{name: bundle.PayloadBootImages, mode: 0o644, digest: bundle.DigestOf(data), size: int64(len(data)),
		store: textStore{path, data}, explicit: true})
	return nil
}

// openBootImage takes a boot image as a file; it is named when the stream is known.
func (in *inputs) openBootImage(path string) error {
	p := payloadRoot{name: path, store: fileStore(path), explicit: true}
	if err := p.readFile(path); err != nil {
		return err
	}
	p.name, p.mode, p.platform, p.version = "", 0o644, "", ""
	in.payloads = append(in.payloads, p)
	return nil
}

// nameBootImages names the files by what the bundle's stream says of their sums: a file
// that no component would read is a mistake.
func (in *inputs) nameBootImages(ctx context.Context) error {
	var stream *bootstream.Stream
	for _, p := range in.payloads {
		if p.name != bundle.PayloadBootImages {
			continue
		}
		r, err := p.store.Open(ctx, ocispec.Descriptor{Digest: digestOf(p.digest), Size: p.size})
		if err != nil {
			return err
		}
		data, err := io.ReadAll(io.LimitReader(r, bootstream.Largest+1))
		r.Close()
		if err != nil {
			return err
		}
		if stream, err = bootstream.Parse(data); err != nil {
			return inputf("%s: %w", p.store, err)
		}
	}
	for i := range in.payloads {
		p := &in.payloads[i]
		if p.name != "" {
			continue
		}
		if stream == nil {
			return inputf("boot-image:%s: the bundle has no stream that says what it is: add boot-images:FILE", p.store)
		}
		f, ok := stream.FindFile(strings.TrimPrefix(p.digest, "sha256:"))
		if !ok {
			return inputf("boot-image:%s: no file of the stream has its SHA-256 %s: is it of another release, or not complete?", p.store, strings.TrimPrefix(p.digest, "sha256:"))
		}
		if p.name = bundle.PrefixBootImage + f.Name(); !bundle.ValidName(p.name) {
			return inputf("boot-image:%s: %s is no name for a payload: give the image shorter words in the stream", p.store, p.name)
		}
	}
	return nil
}
