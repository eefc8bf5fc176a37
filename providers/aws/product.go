package aws

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/providers/cloud"
)

// marketplace is how EC2 calls the owner of images of AWS Marketplace.
const marketplace = "aws-marketplace"

// osVersion is the version of RHEL CoreOS in the name of an image: 415.92.202402201450-0.
var osVersion = regexp.MustCompile(`\d+\.\d+\.\d{8,12}-\d+`)

// architectures as EC2 spells them.
var architectures = map[string]string{"amd64": "x86_64", "arm64": "arm64"}

// resolveProduct reports the product's image with the highest version that is not above the
// stream's: a marketplace lags. Machines of a product must not start from an image of another
// one, which is paid for in another way.
func (c *Cloud) resolveProduct(ctx context.Context, w cloud.Wanted) (cloud.Answer, error) {
	want, err := componentversion.ParseOS(w.Version)
	if err != nil {
		return cloud.Answer{}, err
	}
	all, err := c.describeImages(ctx, url.Values{"Owner.1": {marketplace}, "IncludeDeprecated": {"true"}, "Filter.1.Name": {"name"}, "Filter.1.Value.1": {"*-" + c.Config.Product},
		"Filter.2.Name": {"architecture"}, "Filter.2.Value.1": {architectures[w.Key.Architecture]}, "Filter.3.Name": {"state"}, "Filter.3.Value.1": {stateAvailable}})
	if err != nil {
		return cloud.Answer{}, fmt.Errorf("describe the images of product %s: %w", c.Config.Product, err)
	}
	var best image
	var version componentversion.OSVersion
	for _, i := range all {
		v, err := componentversion.ParseOS(osVersion.FindString(i.Name))
		if err != nil || !strings.HasSuffix(i.Name, "-"+c.Config.Product) {
			continue
		}
		if order, err := v.Compare(want); err != nil || order > 0 {
			continue
		}
		if better(i, v, best, version) {
			best, version = i, v
		}
	}
	if best.ID == "" {
		return cloud.Answer{}, nil
	}
	a := describe(best)
	a.Version = version.Text
	return a, nil
}

// better reports whether an image is to be preferred to the best one so far: a higher version, or
// the same one that was published again.
func better(i image, v componentversion.OSVersion, best image, of componentversion.OSVersion) bool {
	order, err := v.Compare(of)
	return best.ID == "" || err == nil && (order > 0 || order == 0 && when(i.Created).After(when(best.Created)))
}
