package containerd

import (
	"context"

	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// imageStore are the runtime's records of images: names and what they stand for.
type imageStore struct{ client imagesapi.ImagesClient }

func (s imageStore) get(ctx context.Context, name string) (images.Image, error) {
	r, err := s.client.Get(ctx, &imagesapi.GetImageRequest{Name: name})
	if err != nil {
		return images.Image{}, err
	}
	return imageFrom(r.GetImage()), nil
}

func (s imageStore) list(ctx context.Context, filter string) ([]images.Image, error) {
	r, err := s.client.List(ctx, &imagesapi.ListImagesRequest{Filters: []string{filter}})
	if err != nil {
		return nil, err
	}
	out := make([]images.Image, 0, len(r.GetImages()))
	for _, i := range r.GetImages() {
		out = append(out, imageFrom(i))
	}
	return out, nil
}

func (s imageStore) create(ctx context.Context, img images.Image) error {
	_, err := s.client.Create(ctx, &imagesapi.CreateImageRequest{Image: imageTo(img)})
	return err
}

// update writes the named fields of a record.
func (s imageStore) update(ctx context.Context, img images.Image, fields ...string) error {
	if len(fields) == 0 {
		return nil // to the runtime it would mean all of them
	}
	_, err := s.client.Update(ctx, &imagesapi.UpdateImageRequest{Image: imageTo(img), UpdateMask: &fieldmaskpb.FieldMask{Paths: fields}})
	return err
}

// remove takes a record out, and returns after the runtime has collected what no other one needs.
func (s imageStore) remove(ctx context.Context, name string) error {
	_, err := s.client.Delete(ctx, &imagesapi.DeleteImageRequest{Name: name, Sync: true})
	return err
}

func imageTo(img images.Image) *imagesapi.Image {
	return &imagesapi.Image{Name: img.Name, Labels: img.Labels, Target: descriptorTo(img.Target)}
}

func imageFrom(i *imagesapi.Image) images.Image {
	t := i.GetTarget()
	return images.Image{Name: i.GetName(), Labels: i.GetLabels(), Target: ocispec.Descriptor{
		MediaType: t.GetMediaType(), Digest: digest.Digest(t.GetDigest()), Size: t.GetSize(), Annotations: t.GetAnnotations()}}
}
