package bundlewriter

import (
	"context"

	"github.com/refit-dev/refit/internal/oci"
)

// openDocker finds the images of a Docker archive. One without a tag needs a name.
func (in *inputs) openDocker(ctx context.Context, src Source) ([]oci.Root, error) {
	roots, c, err := oci.OpenDockerArchive(ctx, src.Path, src.Tag)
	if err != nil {
		return nil, err
	}
	in.closers = append(in.closers, c)
	for _, r := range roots {
		if r.Name == "" && src.As == "" {
			return nil, inputf("docker-archive:%s: its image has no tag: name it with NAME=docker-archive:%s", src.Path, src.Path)
		}
	}
	return roots, nil
}
