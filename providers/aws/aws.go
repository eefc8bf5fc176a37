package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/refit-dev/refit/providers/cloud"
)

// Config is an account and a region.
type Config struct {
	Region string `json:"region"`
	// Profile of the shared configuration; empty is the default one.
	Profile string `json:"profile,omitempty"`
	// Product of AWS Marketplace that machines start from: the identifier that ends the names
	// of its images. Empty is the image that the stream names.
	Product string `json:"product,omitempty"`
	// Endpoint of EC2 in this region; empty is the public one.
	Endpoint string `json:"endpoint,omitempty"`
}

// endpoint returns the address of EC2. Regions of China have their own domain.
func (c Config) endpoint() string {
	switch {
	case c.Endpoint != "":
		return strings.TrimSuffix(c.Endpoint, "/") + "/"
	case strings.HasPrefix(c.Region, "cn-"):
		return "https://ec2." + c.Region + ".amazonaws.com.cn/"
	}
	return "https://ec2." + c.Region + ".amazonaws.com/"
}

// Cloud is EC2 in one region.
type Cloud struct {
	Config Config
	// Client sends the requests; nil is the default one.
	Client *http.Client
}

// Resolve reports the image with the stream's identifier, or the product's image for it.
func (c *Cloud) Resolve(ctx context.Context, w cloud.Wanted) (cloud.Answer, error) {
	if c.Config.Product != "" {
		return c.resolveProduct(ctx, w)
	}
	id := w.Attributes["image"]
	if id == "" {
		return cloud.Answer{}, errors.New("the stream has no identifier of an image (attribute image)")
	}
	all, err := c.describeImages(ctx, url.Values{"ImageId.1": {id}, "IncludeDeprecated": {"true"}, "IncludeDisabled": {"true"}})
	if unknown(err) || err == nil && len(all) == 0 {
		return cloud.Answer{}, nil
	}
	if err != nil {
		return cloud.Answer{}, fmt.Errorf("describe %s: %w", id, err)
	}
	a := describe(all[0])
	if a.Problem == "" {
		a.Newest, err = c.newest(ctx, all[0], w.Version)
	}
	return a, err
}

// unknown reports whether EC2 answered that it has no such image for this account.
func unknown(err error) bool {
	var e *apiError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case "InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidAMIID.Malformed":
		return true
	}
	return false
}

// image is an image as EC2 describes it.
type image struct {
	ID           string `xml:"imageId"`
	State        string `xml:"imageState"`
	Owner        string `xml:"imageOwnerId"`
	Architecture string `xml:"architecture"`
	Name         string `xml:"name"`
	Created      string `xml:"creationDate"`
	Deprecated   string `xml:"deprecationTime"`
}

const stateAvailable = "available"

// describe returns what an image of EC2 is.
func describe(i image) cloud.Answer {
	a := cloud.Answer{Names: map[string]string{"image": i.ID}, Architecture: i.Architecture, Created: when(i.Created), Deprecated: when(i.Deprecated)}
	if i.State == stateAvailable {
		a.Exists = true
	} else {
		a.Problem = fmt.Sprintf("image %s is in state %s", i.ID, i.State)
	}
	return a
}

func when(text string) time.Time {
	t, _ := time.Parse(time.RFC3339, text)
	return t
}

// newest returns the name of the newest image of the same owner and family, empty if that is this
// image, or if its name does not show a family.
func (c *Cloud) newest(ctx context.Context, i image, version string) (string, error) {
	before, after, ok := strings.Cut(i.Name, version)
	if version == "" || !ok || i.Owner == "" {
		return "", nil
	}
	all, err := c.describeImages(ctx, url.Values{"Owner.1": {i.Owner}, "Filter.1.Name": {"name"}, "Filter.1.Value.1": {before + cloud.Family(version) + after},
		"Filter.2.Name": {"architecture"}, "Filter.2.Value.1": {i.Architecture}, "Filter.3.Name": {"state"}, "Filter.3.Value.1": {stateAvailable}})
	if err != nil {
		return "", fmt.Errorf("describe the images of %s: %w", i.Owner, err)
	}
	name, at := "", when(i.Created)
	for _, o := range all {
		if t := when(o.Created); t.After(at) {
			name, at = o.Name, t
		}
	}
	return name, nil
}
