package ibm

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/refit-dev/refit/providers/cloud"
)

// PowerVSConfig is a workspace of Power Virtual Server.
type PowerVSConfig struct {
	// CRN is the workspace's: crn:v1:bluemix:public:power-iaas:eu-de-1:a/ACCOUNT:WORKSPACE::.
	CRN string `json:"crn"`
	// Region of its API: eu-de.
	Region string `json:"region"`
	// Endpoint of Power Virtual Server, and IAM's; empty are the public ones.
	Endpoint string `json:"endpoint,omitempty"`
	IAM      string `json:"iam,omitempty"`
}

// workspace returns the identifier in the CRN.
func (c PowerVSConfig) workspace() (string, error) {
	const workspace, parts = 7, 10
	p := strings.Split(c.CRN, ":")
	if len(p) != parts || p[0] != "crn" || p[4] != "power-iaas" || p[workspace] == "" {
		return "", fmt.Errorf("powervs.crn %q is not that of a workspace (crn:v1:bluemix:public:power-iaas:ZONE:a/ACCOUNT:WORKSPACE::)", c.CRN)
	}
	return p[workspace], nil
}

// Check refuses a configuration that can ask nothing.
func (c PowerVSConfig) Check() error {
	if c.Region == "" {
		return errors.New("set powervs.region, for example eu-de")
	}
	_, err := c.workspace()
	return err
}

// PowerVS is a workspace of Power Virtual Server.
type PowerVS struct {
	Login
	Config PowerVSConfig
}

// powerImage is an image as the workspace lists it.
type powerImage struct {
	ID             string `json:"imageID"`
	Name           string `json:"name"`
	State          string `json:"state"`
	Created        string `json:"creationDate"`
	Specifications struct {
		Architecture string `json:"architecture"`
		Endianness   string `json:"endianness"`
	} `json:"specifications"`
}

// Resolve reports the image of the workspace with the image's name.
func (c *PowerVS) Resolve(ctx context.Context, w cloud.Wanted) (cloud.Answer, error) {
	if w.Name == "" {
		return cloud.Answer{}, errNoName
	}
	workspace, err := c.Config.workspace()
	if err != nil {
		return cloud.Answer{}, err
	}
	s, err := c.connect(ctx, c.Config.IAM)
	if err != nil {
		return cloud.Answer{}, err
	}
	endpoint := "https://" + c.Config.Region + ".power-iaas.cloud.ibm.com"
	if c.Config.Endpoint != "" {
		endpoint = strings.TrimSuffix(c.Config.Endpoint, "/")
	}
	var list struct {
		Images []powerImage `json:"images"`
	}
	address := endpoint + "/pcloud/v1/cloud-instances/" + url.PathEscape(workspace) + "/images"
	if err := s.get(ctx, address, map[string]string{"CRN": c.Config.CRN}, &list); err != nil {
		return cloud.Answer{}, fmt.Errorf("images of the workspace: %w", err)
	}
	var named []powerImage
	for _, i := range list.Images {
		if i.Name == w.Name {
			named = append(named, i)
		}
	}
	switch len(named) {
	case 0:
		return cloud.Answer{}, nil
	case 1:
		return named[0].describe(), nil
	}
	return cloud.Answer{Problem: fmt.Sprintf("the workspace has %d images %s: delete one", len(named), w.Name)}, nil
}

// describe returns what an image of Power Virtual Server is. It reports no checksum of its own.
func (i powerImage) describe() cloud.Answer {
	a := cloud.Answer{Names: map[string]string{"id": i.ID, "name": i.Name}, Architecture: i.Specifications.Architecture, Created: when(i.Created)}
	if a.Architecture == "ppc64" && i.Specifications.Endianness == "little-endian" {
		a.Architecture = "ppc64le"
	}
	if !strings.EqualFold(i.State, "active") {
		a.Problem = fmt.Sprintf("image %s is in state %s", i.Name, i.State)
		return a
	}
	a.Exists, a.Unverified = true, true
	return a
}
