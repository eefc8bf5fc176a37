package nutanix

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/refit-dev/refit/providers/cloud"
)

// Resolve reports the image with the image's name.
func (c *Cloud) Resolve(ctx context.Context, w cloud.Wanted) (cloud.Answer, error) {
	if w.Name == "" {
		return cloud.Answer{}, errors.New("no name is configured: set image of this cloud")
	}
	s, err := c.session()
	if err != nil {
		return cloud.Answer{}, err
	}
	all, err := s.named(ctx, w.Name)
	if err != nil {
		return cloud.Answer{}, fmt.Errorf("list images named %s: %w", w.Name, err)
	}
	return describe(all, w), nil
}

// States of an image in Prism.
const (
	stateComplete = "COMPLETE"
	stateError    = "ERROR"
)

// The description of an image that refit uploaded: prefix, SHA-256, state.
const (
	markPrefix   = "refit boot image, SHA-256 "
	markVerified = ", verified"
	markOpen     = ", upload not complete"
)

// mark returns refit's mark of an image, an empty sum if it has none.
func mark(i image) (sum string, verified bool) {
	rest, ok := strings.CutPrefix(i.Spec.Description, markPrefix)
	if !ok {
		return "", false
	}
	sum, state, _ := strings.Cut(rest, ",")
	return sum, ","+state == markVerified
}

func incomplete(i image) bool {
	sum, verified := mark(i)
	return sum != "" && !verified
}

// describe returns what the images with a name are. Incomplete uploads do not count.
func describe(all []image, w cloud.Wanted) cloud.Answer {
	var left []image
	for _, i := range all {
		if !incomplete(i) {
			left = append(left, i)
		}
	}
	if len(left) == 0 {
		return cloud.Answer{}
	}
	if len(left) > 1 {
		return cloud.Answer{Problem: fmt.Sprintf("%d images are named %s: machines would start from any of them", len(left), w.Name)}
	}
	i := left[0]
	a := cloud.Answer{Names: map[string]string{"name": i.Spec.Name, "id": i.Metadata.UUID}, Architecture: i.Spec.Resources.Architecture, Created: i.Metadata.Created}
	sum, _ := mark(i)
	switch {
	case i.Status.State != stateComplete:
		a.Problem = fmt.Sprintf("image %s is in state %s", i.Metadata.UUID, i.Status.State)
	case sum != "" && sum != w.Sum():
		a.Problem = fmt.Sprintf("image %s was made from a file with SHA-256 %s: use {version} in the name of images, or delete it", i.Metadata.UUID, sum)
	case len(all) > 1:
		a.Problem = fmt.Sprintf("an incomplete upload has the name %s too: delete it", w.Name)
	default:
		a.Exists, a.Unverified = true, sum == ""
	}
	return a
}
