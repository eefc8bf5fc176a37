package openstack

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"github.com/refit-dev/refit/providers/cloud"
)

// Config is an entry of a clouds.yaml.
type Config struct {
	// Cloud is the name of the entry.
	Cloud string `json:"cloud"`
	// File is the clouds.yaml; empty searches where the OpenStack client does.
	File string `json:"file,omitempty"`
	// DiskFormat of uploads; empty is qcow2.
	DiskFormat string `json:"diskFormat,omitempty"`
}

// Cloud is a Glance.
type Cloud struct {
	Config Config
	// Transport wraps the transport of each connection; nil for none.
	Transport func(http.RoundTripper) http.RoundTripper
}

// connect logs in and finds the image service.
func (c *Cloud) connect(ctx context.Context) (*gophercloud.ServiceClient, error) {
	options := []clouds.ParseOption{clouds.WithCloudName(c.Config.Cloud)}
	if c.Config.File != "" {
		options = append(options, clouds.WithLocations(c.Config.File))
	}
	auth, endpoint, tls, err := clouds.Parse(options...)
	if err != nil {
		return nil, fmt.Errorf("clouds.yaml: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = tls
	client := http.Client{Transport: transport}
	if c.Transport != nil {
		client.Transport = c.Transport(transport)
	}
	p, err := config.NewProviderClient(ctx, auth, config.WithHTTPClient(client))
	if err != nil {
		return nil, fmt.Errorf("log in to %s: %w", c.Config.Cloud, err)
	}
	return openstack.NewImageV2(p, endpoint)
}

// Resolve reports the image with the image's name.
func (c *Cloud) Resolve(ctx context.Context, w cloud.Wanted) (cloud.Answer, error) {
	if w.Name == "" {
		return cloud.Answer{}, errors.New("no name is configured: set image of this cloud")
	}
	s, err := c.connect(ctx)
	if err != nil {
		return cloud.Answer{}, err
	}
	all, err := named(ctx, s, w.Name)
	if err != nil {
		return cloud.Answer{}, err
	}
	return describe(all, w), nil
}

// named lists the images with a name, also the hidden ones.
func named(ctx context.Context, s *gophercloud.ServiceClient, name string) ([]images.Image, error) {
	var out []images.Image
	for _, hidden := range []bool{false, true} {
		pages, err := images.List(s, images.ListOpts{Name: name, Hidden: hidden}).AllPages(ctx)
		if err != nil {
			return nil, fmt.Errorf("list images named %s: %w", name, err)
		}
		list, err := images.ExtractImages(pages)
		if err != nil {
			return nil, err
		}
		for _, i := range list {
			if i.Name == name && i.Hidden == hidden {
				out = append(out, i)
			}
		}
	}
	return out, nil
}

// Properties of images that refit uploaded.
const (
	propertySum      = "refit_sha256"
	propertyVerified = "refit_verified"
	verified         = "true"
)

func property(i images.Image, name string) string {
	s, _ := i.Properties[name].(string)
	return s
}

// incomplete reports whether an image is an upload of refit that it did not verify.
func incomplete(i images.Image) bool {
	return property(i, propertySum) != "" && property(i, propertyVerified) != verified
}

// describe returns what the images with a name are. Incomplete uploads do not count.
func describe(all []images.Image, w cloud.Wanted) cloud.Answer {
	var left []images.Image
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
	a := cloud.Answer{Names: map[string]string{"name": i.Name, "id": i.ID}, Architecture: property(i, "architecture"), Created: i.CreatedAt}
	sum := property(i, propertySum)
	switch {
	case i.Status != images.ImageStatusActive:
		a.Problem = fmt.Sprintf("image %s is in status %s", i.ID, i.Status)
	case sum != "" && sum != w.Sum():
		a.Problem = fmt.Sprintf("image %s was made from a file with SHA-256 %s: use {version} in the name of images, or delete it", i.ID, sum)
	case len(all) > 1:
		a.Problem = fmt.Sprintf("an incomplete upload has the name %s too: delete it", w.Name)
	default:
		a.Exists, a.Unverified = true, sum == ""
	}
	if i.Hidden {
		a.Deprecated = i.UpdatedAt
	}
	return a
}
