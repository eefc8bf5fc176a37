package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/refit-dev/refit/providers/cloud"
)

// Config is Compute Engine; the stream names the project of an image.
type Config struct {
	// Endpoint of the API; empty is the public one.
	Endpoint string `json:"endpoint,omitempty"`
}

const (
	publicEndpoint = "https://compute.googleapis.com"
	scope          = "https://www.googleapis.com/auth/compute.readonly"
	// maxAnswer is the size of the largest answer that is read, in bytes.
	maxAnswer = 1 << 20
)

// Cloud is Compute Engine.
type Cloud struct{ Config Config }

// image is an image as the API shows it.
type image struct {
	Name         string `json:"name"`
	Status       string `json:"status"`
	Family       string `json:"family"`
	Architecture string `json:"architecture"`
	Created      string `json:"creationTimestamp"`
	Deprecated   struct {
		State string `json:"state"`
		At    string `json:"deprecated"`
	} `json:"deprecated"`
}

// errNotFound says that the API does not know an image.
var errNotFound = errors.New("not found")

// Resolve reports the image with the stream's project and name.
func (c *Cloud) Resolve(ctx context.Context, w cloud.Wanted) (cloud.Answer, error) {
	project, name, family := w.Attributes["project"], w.Attributes["name"], w.Attributes["family"]
	if project == "" || name == "" {
		return cloud.Answer{}, errors.New("the stream does not have the project and the name of the image")
	}
	s, err := c.connect(ctx, project)
	if err != nil {
		return cloud.Answer{}, err
	}
	i, err := s.get(ctx, url.PathEscape(name))
	if err != nil && !errors.Is(err, errNotFound) {
		return cloud.Answer{}, fmt.Errorf("image %s of project %s: %w", name, project, err)
	}
	var a cloud.Answer
	if err == nil {
		a = describe(i, w)
		if i.Family != "" {
			family = i.Family
		}
	}
	if family != "" && a.Problem == "" {
		a.Newest, err = s.newest(ctx, family, name)
		return a, err
	}
	return a, nil
}

// describe returns what an image is.
func describe(i image, w cloud.Wanted) cloud.Answer {
	a := cloud.Answer{Architecture: i.Architecture, Created: when(i.Created), Deprecated: when(i.Deprecated.At),
		Names: map[string]string{"project": w.Attributes["project"], "name": i.Name}}
	switch state := i.Deprecated.State; {
	case state == "OBSOLETE" || state == "DELETED":
		a.Problem = fmt.Sprintf("image %s is %s", i.Name, strings.ToLower(state))
	case i.Status != "READY":
		a.Problem = fmt.Sprintf("image %s is in status %s", i.Name, i.Status)
	default:
		a.Exists = true
	}
	return a
}

func when(text string) time.Time {
	t, _ := time.Parse(time.RFC3339, text)
	return t
}

// session asks about the images of a project.
type session struct {
	client *http.Client
	images string
}

func (c *Cloud) connect(ctx context.Context, project string) (*session, error) {
	credentials, err := google.FindDefaultCredentials(ctx, scope)
	if err != nil {
		return nil, fmt.Errorf("credentials of Google Cloud: %w", err)
	}
	endpoint := c.Config.Endpoint
	if endpoint == "" {
		endpoint = publicEndpoint
	}
	return &session{client: oauth2.NewClient(ctx, credentials.TokenSource),
		images: strings.TrimSuffix(endpoint, "/") + "/compute/v1/projects/" + url.PathEscape(project) + "/global/images/"}, nil
}

func (s *session) get(ctx context.Context, path string) (i image, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.images+path, nil)
	if err != nil {
		return i, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return i, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return i, err
	}
	var out struct {
		image
		Error struct {
			Message string `json:"message"`
			Errors  []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	decodeErr := json.Unmarshal(data, &out)
	switch {
	case resp.StatusCode == http.StatusNotFound && decodeErr == nil && len(out.Error.Errors) > 0 && out.Error.Errors[0].Reason == "notFound":
		return i, errNotFound
	case resp.StatusCode != http.StatusOK:
		return i, fmt.Errorf("the API answers %s: %s", resp.Status, out.Error.Message)
	}
	return out.image, decodeErr
}

// newest returns the name of the newest image of a family, empty if it is the named one, or if
// the family has none.
func (s *session) newest(ctx context.Context, family, name string) (string, error) {
	i, err := s.get(ctx, "family/"+url.PathEscape(family))
	if errors.Is(err, errNotFound) || err == nil && i.Name == name {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("family %s: %w", family, err)
	}
	return i.Name, nil
}
