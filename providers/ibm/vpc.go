package ibm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/refit-dev/refit/providers/cloud"
)

// VPCConfig is a region of VPC.
type VPCConfig struct {
	// Region as IBM Cloud names it: eu-de.
	Region string `json:"region"`
	// ResourceGroup is the identifier of one; empty is every one.
	ResourceGroup string `json:"resourceGroup,omitempty"`
	// Endpoint of VPC in the region, and IAM's; empty are the public ones.
	Endpoint string `json:"endpoint,omitempty"`
	IAM      string `json:"iam,omitempty"`
}

// VPC is a region of VPC.
type VPC struct {
	Login
	Config VPCConfig
}

// vpcVersion is the date of the API's version.
const vpcVersion = "2025-09-16"

// vpcImage is an image as VPC shows it.
type vpcImage struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Status  string `json:"status"`
	Reasons []struct {
		Message string `json:"message"`
	} `json:"status_reasons"`
	Created    string `json:"created_at"`
	Deprecated string `json:"deprecation_at"`
	Obsolete   string `json:"obsolescence_at"`
	Encryption string `json:"encryption"`
	OS         struct {
		Architecture string `json:"architecture"`
	} `json:"operating_system"`
	File struct {
		Checksums struct {
			SHA256 string `json:"sha256"`
		} `json:"checksums"`
	} `json:"file"`
}

// Resolve reports the image with the image's name.
func (c *VPC) Resolve(ctx context.Context, w cloud.Wanted) (cloud.Answer, error) {
	if w.Name == "" {
		return cloud.Answer{}, errNoName
	}
	w.Name = vpcName(w.Name)
	s, err := c.connect(ctx, c.Config.IAM)
	if err != nil {
		return cloud.Answer{}, err
	}
	endpoint := "https://" + c.Config.Region + ".iaas.cloud.ibm.com"
	if c.Config.Endpoint != "" {
		endpoint = strings.TrimSuffix(c.Config.Endpoint, "/")
	}
	query := url.Values{"version": {vpcVersion}, "generation": {"2"}, "name": {w.Name}}
	if c.Config.ResourceGroup != "" {
		query.Set("resource_group.id", c.Config.ResourceGroup)
	}
	var list struct {
		Images []vpcImage `json:"images"`
	}
	if err := s.get(ctx, endpoint+"/v1/images?"+query.Encode(), nil, &list); err != nil {
		return cloud.Answer{}, fmt.Errorf("images %s: %w", w.Name, err)
	}
	var named []vpcImage
	for _, i := range list.Images {
		if i.Name == w.Name {
			named = append(named, i)
		}
	}
	if len(named) == 0 {
		return cloud.Answer{}, nil
	}
	if len(named) > 1 {
		return cloud.Answer{Problem: fmt.Sprintf("there are %d images %s: set resourceGroup, or delete one", len(named), w.Name)}, nil
	}
	return named[0].describe(w), nil
}

// vpcName returns a name as VPC allows it: a version in it has no dots there.
func vpcName(name string) string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(strings.ToLower(name))
}

var errNoName = errors.New("no name is configured: set image of this cloud")

// describe returns what an image of VPC is.
func (i vpcImage) describe(w cloud.Wanted) cloud.Answer {
	a := cloud.Answer{Names: map[string]string{"id": i.ID, "name": i.Name}, Architecture: i.OS.Architecture, Created: when(i.Created), Deprecated: when(i.Deprecated)}
	if a.Deprecated.IsZero() {
		a.Deprecated = when(i.Obsolete)
	}
	f, isFile := w.DiskFile()
	sum := i.File.Checksums.SHA256
	compared := isFile && sum != "" && (i.Encryption == "" || i.Encryption == "none")
	switch {
	case i.Status != "available" && i.Status != "deprecated":
		a.Problem = fmt.Sprintf("image %s is in status %s", i.Name, i.Status)
		if len(i.Reasons) > 0 {
			a.Problem += ": " + i.Reasons[0].Message
		}
	case compared && !f.HasSum(strings.ToLower(sum)):
		a.Problem = fmt.Sprintf("image %s was made from a file with SHA-256 %s: use {version} in the name of images, or delete it", i.Name, sum)
	default:
		a.Exists, a.Unverified = true, !compared
	}
	return a
}
