package registry_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/refit-dev/refit/internal/imageproof"
	"github.com/refit-dev/refit/internal/pipeline/bundle/bundletest"
	"github.com/refit-dev/refit/internal/registry"
)

// Signatures that refer to an image are found by the API and by the tag that stands in for it, those
// of cosign by their tags. Those of the platforms are read if that is asked for.
func TestSignatures(t *testing.T) {
	t.Parallel()
	for what, api := range map[string]bool{"with the referrers API": true, "without it": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)), ggcr.WithReferrersSupport(api)))
			defer s.Close()
			repo, err := name.NewRepository(strings.TrimPrefix(s.URL, "http://") + "/shop/app")
			if err != nil {
				t.Fatal(err)
			}
			index, err := random.Index(100, 1, 2)
			if err != nil {
				t.Fatal(err)
			}
			digest := upload(t, repo, index)
			manifest, err := index.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			platform := manifest.Manifests[0].Digest.String()
			p := bundletest.NewPublisher(t)
			refer(t, repo, digest, index, p)
			for _, d := range []string{digest, platform} {
				payload, signature := p.Sign(repo.Name(), d)
				push(t, repo.Tag(strings.Replace(d, ":", "-", 1)+".sig"), artifact(t, payload, signature))
			}
			at := registry.Place{Repository: repo.Name(), Insecure: true}
			img := imageproof.Image{Name: repo.Name() + ":1", Repository: repo.Name(), Digest: digest}
			for _, platforms := range []bool{false, true} {
				got, entries, err := registry.NewPoller(http.DefaultTransport, time.Now).Signatures(t.Context(), at, img, platforms)
				if err != nil {
					t.Fatal(err)
				}
				count := map[string]int{}
				for _, e := range entries {
					if len(e.Proofs) != 1 || len(e.Broken) != 0 || e.Image != img.Name {
						t.Errorf("%+v", e)
					}
					count[e.Subject]++
				}
				if want := map[bool]int{true: 1}[platforms]; count[digest] != 2 || count[platform] != want || len(entries) != 2+want || (len(got.Platforms) == 2) != platforms {
					t.Errorf("platforms %t: %v of %d, %v", platforms, count, len(entries), got.Platforms)
				}
			}
		})
	}
}

func upload(t *testing.T, repo name.Repository, index v1.ImageIndex) string {
	t.Helper()
	d, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(repo.Digest(d.String()), index); err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func push(t *testing.T, ref name.Reference, img v1.Image) {
	t.Helper()
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
}

// artifact is a signature of cosign.
func artifact(t *testing.T, payload []byte, signature string) v1.Image {
	t.Helper()
	img, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), mutate.Addendum{Layer: static.NewLayer(payload, imageproof.MediaTypeSimpleSigning),
		Annotations: map[string]string{bundletest.SignatureAnnotation: signature}})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// refer pushes a signature that refers to an index. The client writes the tag for registries
// without the API itself.
func refer(t *testing.T, repo name.Repository, digest string, index v1.ImageIndex, p bundletest.Publisher) {
	t.Helper()
	d, err := partial.Descriptor(index)
	if err != nil {
		t.Fatal(err)
	}
	payload, signature := p.Sign(repo.Name(), digest)
	img := mutate.Subject(artifact(t, append(payload, ' '), signature), *d).(v1.Image)
	sum, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	push(t, repo.Digest(sum.String()), img)
}
