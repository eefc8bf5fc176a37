package bundlewriter

import (
	"context"
	"maps"
	"slices"

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

// joinPlatforms makes one image of those that Docker archives have under one name, each for
// another platform.
func joinPlatforms(ctx context.Context, roots []oci.Root) ([]oci.Root, error) {
	var out []oci.Root
	byName := map[string][]oci.Root{}
	for _, r := range roots {
		if r.OnePlatform {
			byName[r.Name] = append(byName[r.Name], r)
		} else {
			out = append(out, r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		r, err := oci.JoinPlatforms(ctx, byName[name])
		if err != nil {
			return nil, asInput(err)
		}
		out = append(out, r)
	}
	return out, nil
}
