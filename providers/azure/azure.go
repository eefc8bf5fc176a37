package azure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/providers/cloud"
)

// Config is a subscription and a location.
type Config struct {
	Subscription string `json:"subscription"`
	Location     string `json:"location"`
	// ResourceGroup of galleries; without one they are galleries of the community.
	ResourceGroup string `json:"resourceGroup,omitempty"`
	// Environment is public, china or government; empty is public.
	Environment string `json:"environment,omitempty"`
	// AzureCluster is a file with an AzureCluster, which has subscription, location and
	// environment (azureEnvironment) where they are left out here.
	AzureCluster string `json:"azureCluster,omitempty"`
	// Endpoint of Azure Resource Manager and Authority of logins; empty are those of the
	// environment.
	Endpoint  string `json:"endpoint,omitempty"`
	Authority string `json:"authority,omitempty"`
}

// Cloud is a location of Azure.
type Cloud struct {
	Config Config
	// Client sends the requests; nil is the default one.
	Client *http.Client
}

// Concerns reports whether machines of Azure can name an image. The stream's disk is a file
// that an installer puts into a gallery under names of its own.
func (c *Cloud) Concerns(i bootstream.Image) bool {
	return i.Attributes["url"] == "" || i.Attributes["offer"] != "" || i.Attributes["gallery"] != "" || i.Attributes["id"] != ""
}

// Resolve reports the offer, the version of a gallery, or the managed image that the stream names.
func (c *Cloud) Resolve(ctx context.Context, w cloud.Wanted) (cloud.Answer, error) {
	q, err := c.question(w.Attributes)
	if err != nil {
		return cloud.Answer{}, err
	}
	s, err := c.connect(ctx)
	if err != nil {
		return cloud.Answer{}, err
	}
	var v version
	err = s.get(ctx, q.path(q.version), q.query, &v)
	if unknown(err) {
		newest, err := s.newest(ctx, q)
		if unknown(err) {
			return cloud.Answer{}, nil
		}
		return cloud.Answer{Newest: newest}, err
	}
	if err != nil {
		return cloud.Answer{}, fmt.Errorf("image %s: %w", q, err)
	}
	a := v.describe(q, c.Config.Location)
	if q.definition != "" && a.Architecture == "" {
		if a.Architecture, err = s.architecture(ctx, q); err != nil {
			return a, err
		}
	}
	if a.Architecture == "x64" {
		a.Architecture = "x86_64"
	}
	if a.Problem == "" {
		a.Newest, err = s.newest(ctx, q)
	}
	return a, err
}

// Versions of the API: that of platform and managed images, and that of galleries.
const (
	computeVersion = "2024-07-01"
	galleryVersion = "2023-07-03"
)

// question is an image in the API.
type question struct {
	// versions is the path of the list of versions, empty for a managed image. definition has
	// the architecture, where the version does not.
	versions, definition, version string
	// single is the path of a managed image.
	single string
	query  url.Values
	names  map[string]string
}

func (q question) String() string {
	if q.single != "" {
		return q.single
	}
	return strings.TrimSuffix(q.versions, "/versions") + " " + q.version
}

func (q question) path(version string) string {
	if q.single != "" {
		return q.single
	}
	return q.versions + "/" + url.PathEscape(version)
}

// question returns where Azure has an image with these attributes.
func (c *Cloud) question(attributes map[string]string) (q question, err error) {
	a, inLocation := attributes, fmt.Sprintf("/subscriptions/%s/providers/Microsoft.Compute/locations/%s", url.PathEscape(c.Config.Subscription), url.PathEscape(c.Config.Location))
	q.version = a["version"]
	switch {
	case a["offer"] != "":
		q.versions = inLocation + segments("publishers", a["publisher"], "artifacttypes", "vmimage", "offers", a["offer"], "skus", a["sku"], "versions")
		q.query = url.Values{"api-version": {computeVersion}}
		q.names = pick(a, "publisher", "offer", "sku", "version")
	case a["gallery"] != "":
		q.definition = c.gallery(inLocation, a["gallery"]) + segments("images", a["name"])
		q.versions, q.query, q.names = q.definition+"/versions", url.Values{"api-version": {galleryVersion}}, pick(a, "gallery", "name", "version")
		if c.Config.ResourceGroup != "" {
			q.query = replicationQuery()
		}
	case a["id"] != "":
		return c.byID(a["id"])
	default:
		return q, errors.New("the stream names no offer (publisher, offer, sku, version), no gallery (gallery, name, version) and no id")
	}
	for name, value := range q.names {
		if value == "" {
			return q, fmt.Errorf("the stream's image has no attribute %s", name)
		}
	}
	if q.version == "latest" {
		return q, errors.New("the stream must name a version: latest may be another image tomorrow")
	}
	return q, nil
}

// replicationQuery asks also for the state of the copies; galleries of the community have none.
func replicationQuery() url.Values {
	return url.Values{"api-version": {galleryVersion}, "$expand": {"ReplicationStatus"}}
}

// gallery returns the path of a gallery: in the resource group, else one of the community.
func (c *Cloud) gallery(inLocation, name string) string {
	if c.Config.ResourceGroup == "" {
		return inLocation + segments("communityGalleries", name)
	}
	return segments("subscriptions", c.Config.Subscription, "resourceGroups", c.Config.ResourceGroup, "providers", "Microsoft.Compute", "galleries", name)
}

// byID returns the image with a resource identifier: a version of a gallery, or a managed image.
func (c *Cloud) byID(id string) (q question, err error) {
	parts := strings.Split(strings.Trim(id, "/"), "/")
	q.names = map[string]string{"id": id}
	const managed, version = 8, 12 // elements of the paths
	switch {
	case len(parts) == version && strings.EqualFold(parts[6], "galleries") && strings.EqualFold(parts[10], "versions"):
		q.definition = segments(parts[:10]...)
		q.versions, q.version, q.query = q.definition+"/versions", parts[11], replicationQuery()
	case len(parts) == managed && strings.EqualFold(parts[6], "images"):
		q.single, q.query = segments(parts...), url.Values{"api-version": {computeVersion}}
	default:
		return q, fmt.Errorf("the stream's id %s is neither a version of a gallery nor a managed image", id)
	}
	return q, nil
}

func segments(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

func pick(from map[string]string, names ...string) map[string]string {
	out := map[string]string{}
	for _, n := range names {
		out[n] = from[n]
	}
	return out
}

// version is an image as the API shows it: of the marketplace, of a gallery, or managed.
type version struct {
	Name       string `json:"name"`
	Location   string `json:"location"`
	Properties struct {
		State        string `json:"provisioningState"`
		Architecture string `json:"architecture"`
		Deprecation  struct {
			State       string `json:"imageState"`
			At          string `json:"scheduledDeprecationTime"`
			Alternative struct {
				Type, Value string
			} `json:"alternativeOption"`
		} `json:"imageDeprecationStatus"`
		// Of galleries; those of the community have the two times here.
		Publishing struct {
			Published     string `json:"publishedDate"`
			EndOfLife     string `json:"endOfLifeDate"`
			NotLatest     bool   `json:"excludeFromLatest"`
			TargetRegions []struct {
				Name string `json:"name"`
			} `json:"targetRegions"`
		} `json:"publishingProfile"`
		Published   string `json:"publishedDate"`
		EndOfLife   string `json:"endOfLifeDate"`
		NotLatest   bool   `json:"excludeFromLatest"`
		Replication struct {
			Summary []struct {
				Region  string `json:"region"`
				State   string `json:"state"`
				Details string `json:"details"`
			} `json:"summary"`
		} `json:"replicationStatus"`
	} `json:"properties"`
}

// describe returns what an image is, for machines in a location.
func (v version) describe(q question, location string) cloud.Answer {
	p := v.Properties
	a := cloud.Answer{Names: q.names, Architecture: p.Architecture, Created: firstTime(p.Publishing.Published, p.Published), Deprecated: firstTime(p.Deprecation.At, p.Publishing.EndOfLife, p.EndOfLife)}
	switch {
	case p.State != "" && p.State != "Succeeded":
		a.Problem = fmt.Sprintf("image %s is in state %s", q, p.State)
	case p.Deprecation.State == "Deprecated":
		a.Problem = fmt.Sprintf("image %s is deprecated: Azure starts no new machines from it%s", q, v.alternative())
	case q.single != "" && !sameLocation(v.Location, location):
		a.Problem = fmt.Sprintf("image %s is in location %s", q, v.Location)
	default:
		a.Problem = v.notReplicated(q, location)
	}
	a.Exists = a.Problem == ""
	return a
}

func (v version) alternative() string {
	if o := v.Properties.Deprecation.Alternative; o.Value != "" {
		return fmt.Sprintf("; its publisher recommends the %s %s", strings.ToLower(o.Type), o.Value)
	}
	return ""
}

// notReplicated returns why a gallery cannot serve an image in a location.
func (v version) notReplicated(q question, location string) string {
	targets := v.Properties.Publishing.TargetRegions
	if len(targets) == 0 {
		return "" // of the marketplace, of the community, or managed
	}
	there := false
	for _, t := range targets {
		there = there || sameLocation(t.Name, location)
	}
	if !there {
		return fmt.Sprintf("image %s has no copy in %s: add the region to its gallery", q, location)
	}
	for _, s := range v.Properties.Replication.Summary {
		if sameLocation(s.Region, location) && s.State != "Completed" {
			return strings.TrimSpace(fmt.Sprintf("the copy of image %s in %s is in state %s %s", q, location, s.State, s.Details))
		}
	}
	return ""
}

// sameLocation compares locations: Azure spells westeurope also "West Europe".
func sameLocation(a, b string) bool {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "")) }
	return plain(a) == plain(b)
}

// firstTime returns the first time that there is; a form that is not known is none.
func firstTime(all ...string) time.Time {
	for _, text := range all {
		if t, err := time.Parse(time.RFC3339, text); err == nil {
			return t
		}
	}
	return time.Time{}
}
