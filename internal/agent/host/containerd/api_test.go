package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// labelled is a store that records labels.
type labelled struct {
	content.Manager
	labels map[string]string
}

func (l *labelled) Update(_ context.Context, info content.Info, fields ...string) (content.Info, error) {
	if len(fields) != len(info.Labels) {
		return info, fmt.Errorf("%d fields for %d labels", len(fields), len(info.Labels))
	}
	l.labels = info.Labels
	return info, nil
}

// The labels that keep blobs are those that containerd's own client writes.
func TestLinkLabelsAreThoseOfContainerd(t *testing.T) {
	child := func(mediaType, text string) ocispec.Descriptor {
		return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromString(text), Size: 1}
	}
	referrer := child("application/vnd.example.signature", "signature")
	referrer.Annotations = map[string]string{images.AnnotationManifestSubject: digest.FromString("subject").String()}
	for name, children := range map[string][]ocispec.Descriptor{
		"manifest":      {child(ocispec.MediaTypeImageConfig, "c"), child(ocispec.MediaTypeImageLayerGzip, "1"), child(ocispec.MediaTypeImageLayerZstd, "2"), child(ocispec.MediaTypeImageLayer, "3")},
		"docker":        {child(images.MediaTypeDockerSchema2Config, "c"), child(images.MediaTypeDockerSchema2LayerGzip, "1")},
		"index":         {child(ocispec.MediaTypeImageManifest, "a"), child(ocispec.MediaTypeImageManifest, "b"), child(images.MediaTypeDockerSchema2Manifest, "c")},
		"other content": {child("application/vnd.example", "x"), child("application/vnd.example", "y"), referrer},
		"two configs":   {child(ocispec.MediaTypeImageConfig, "c"), child(ocispec.MediaTypeImageConfig, "d")},
	} {
		store := &labelled{}
		handler := images.SetChildrenMappedLabels(store, func(context.Context, ocispec.Descriptor) ([]ocispec.Descriptor, error) { return children, nil }, images.ChildGCLabels)
		if _, err := handler(t.Context(), child(ocispec.MediaTypeImageIndex, "top")); err != nil {
			t.Fatal(err)
		}
		if got := linkLabels(children); len(got) == 0 || !maps.Equal(got, store.labels) {
			t.Errorf("%s: %v, containerd's client writes %v", name, got, store.labels)
		}
	}
}

// The runtime's errors have the kinds that containerd's own client gives them.
func TestErrorsAreThoseOfContainerd(t *testing.T) {
	if nativeError(nil) != nil {
		t.Error("an error of a call that worked")
	}
	if err := nativeError(io.EOF); !errors.Is(err, io.EOF) {
		t.Errorf("the end of a stream became %v", err)
	}
	kinds := []error{errdefs.ErrInvalidArgument, errdefs.ErrNotFound, errdefs.ErrAlreadyExists, errdefs.ErrPermissionDenied, errdefs.ErrResourceExhausted,
		errdefs.ErrFailedPrecondition, errdefs.ErrAborted, errdefs.ErrOutOfRange, errdefs.ErrNotImplemented, errdefs.ErrInternal, errdefs.ErrUnavailable,
		errdefs.ErrDataLoss, errdefs.ErrUnknown, errdefs.ErrUnauthenticated, context.Canceled, context.DeadlineExceeded}
	for code := codes.OK + 1; code <= codes.Unauthenticated; code++ {
		sent := status.Error(code, "blob x")
		got, theirs := nativeError(sent), errgrpc.ToNative(sent)
		for _, kind := range kinds {
			if errors.Is(got, kind) != errors.Is(theirs, kind) {
				t.Errorf("%s is %v: %v, for containerd's client %v", code, kind, errors.Is(got, kind), errors.Is(theirs, kind))
			}
		}
		if again := nativeError(got); got.Error() != "blob x" || again.Error() != got.Error() {
			t.Errorf("%s: %q, then %q", code, got, again)
		}
	}
}
