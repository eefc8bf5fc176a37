package azure

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/providers/cloud"
)

// manager answers in the form of Azure Resource Manager's published API, to a service principal.
type manager struct {
	*Cloud
	// answers by path without the subscription; queries that they were asked with.
	answers map[string]string
	queries map[string]url.Values
	// code and failing are an error for every question.
	code    int
	failing string
	secret  string
	address string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	m := &manager{answers: map[string]string{}, queries: map[string]url.Values{}, secret: "secret"}
	server := httptest.NewTLSServer(m)
	t.Cleanup(server.Close)
	m.address = server.URL
	for k, v := range map[string]string{"AZURE_TOKEN_CREDENTIALS": "EnvironmentCredential", "AZURE_TENANT_ID": "tenant", "AZURE_CLIENT_ID": "refit", "AZURE_CLIENT_SECRET": "secret"} {
		t.Setenv(k, v)
	}
	m.Cloud = &Cloud{Client: server.Client(), Config: Config{Subscription: "sub", Location: "westeurope", Endpoint: server.URL, Authority: server.URL + "/"}}
	return m
}

const subscription = "/subscriptions/sub"

func (m *manager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	path := strings.TrimPrefix(r.URL.Path, subscription)
	switch {
	case strings.HasSuffix(r.URL.Path, "/openid-configuration"):
		_, _ = fmt.Fprintf(w, `{"issuer":"%[1]s/tenant/v2.0","authorization_endpoint":"%[1]s/tenant/oauth2/v2.0/authorize","token_endpoint":"%[1]s/tenant/oauth2/v2.0/token"}`, m.address)
	case strings.HasSuffix(r.URL.Path, "/token"):
		if r.FormValue("client_secret") != m.secret || r.FormValue("scope") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":"invalid_client","error_description":"AADSTS7000215: Invalid client secret provided."}`))
			return
		}
		_, _ = w.Write([]byte(`{"token_type":"Bearer","expires_in":3599,"access_token":"t"}`))
	case r.Header.Get("Authorization") != "Bearer t":
		m.answerError(w, http.StatusUnauthorized, "InvalidAuthenticationToken")
	case m.code != 0:
		m.answerError(w, m.code, m.failing)
	case m.answers[path] == "":
		m.answerError(w, http.StatusNotFound, "NotFound")
	default:
		m.queries[path] = r.URL.Query()
		if more := m.answers[path+"?"+r.URL.Query().Get("$skiptoken")]; more != "" {
			_, _ = w.Write([]byte(more))
			return
		}
		_, _ = w.Write([]byte(m.answers[path]))
	}
}

func (m *manager) answerError(w http.ResponseWriter, code int, name string) {
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"error":{"code":%q,"message":"as the test set it"}}`, name)
}

func wanted(attributes map[string]string) cloud.Wanted {
	return cloud.Wanted{Image: bootstream.Image{Key: bootstream.Key{Architecture: "amd64", Platform: "azure"}, Attributes: attributes}}
}

var (
	offer   = map[string]string{"publisher": "azureopenshift", "offer": "aro4", "sku": "aro_419-v2", "version": "419.6.20250523", "type": "MarketplaceNoPlan"}
	gallery = map[string]string{"gallery": "nodes", "name": "ubuntu", "version": "1.36.3"}
)

const (
	offerVersions   = "/providers/Microsoft.Compute/locations/westeurope/publishers/azureopenshift/artifacttypes/vmimage/offers/aro4/skus/aro_419-v2/versions"
	galleryImage    = "/resourceGroups/images/providers/Microsoft.Compute/galleries/nodes/images/ubuntu"
	communityImage  = "/providers/Microsoft.Compute/locations/westeurope/communityGalleries/nodes/images/ubuntu"
	managed         = "/resourceGroups/images/providers/Microsoft.Compute/images/mine"
	offerShape      = `{"location":"westeurope","name":"419.6.20250523","properties":{"hyperVGeneration":"V2","architecture":"x64","osDiskImage":{"operatingSystem":"Linux"}%s}}`
	galleryShape    = `{"name":"1.36.3","location":"northeurope","properties":{"provisioningState":%q,"publishingProfile":{"publishedDate":"2026-06-01T10:00:00.1234567+00:00"%s,"targetRegions":[{"name":"North Europe"},{"name":%q}]},"replicationStatus":{"aggregatedState":"Completed","summary":[{"region":"West Europe","state":%q,"details":"at 40 percent"}]}}}`
	definitionShape = `{"name":"ubuntu","properties":{"osType":"Linux","architecture":"Arm64"}}`
	listShape       = `[{"location":"westeurope","name":"419.6.20250523"},{"location":"westeurope","name":"%s"},{"location":"westeurope","name":"420.6.20260101"}]`
)

// check asks, and compares the parts of the answer.
func (m *manager) check(t *testing.T, name string, w cloud.Wanted, want cloud.Answer) {
	t.Helper()
	a, err := m.Resolve(context.Background(), w)
	if err != nil || a.Exists != want.Exists || a.Newest != want.Newest || a.Architecture != want.Architecture || (a.Problem == "") != (want.Problem == "") || !strings.Contains(a.Problem, want.Problem) ||
		!a.Created.Equal(want.Created) || !a.Deprecated.Equal(want.Deprecated) {
		t.Errorf("%s: %+v %v; want %+v", name, a, err, want)
	}
	for k, v := range a.Names {
		if w.Attributes[k] != v {
			t.Errorf("%s: machines would name another image: %s=%s", name, k, v)
		}
	}
}

func TestMarketplace(t *testing.T) {
	m := newManager(t)
	w, at := wanted(offer), offerVersions+"/419.6.20250523"
	m.check(t, "no such offer", w, cloud.Answer{})
	m.answers[offerVersions] = fmt.Sprintf(listShape, "419.6.20250401")
	m.check(t, "the version is gone", w, cloud.Answer{})
	m.answers[offerVersions] = fmt.Sprintf(listShape, "419.6.20250702")
	m.check(t, "the version is gone, and there is a newer one", w, cloud.Answer{Newest: "419.6.20250702"})
	m.answers[at] = fmt.Sprintf(offerShape, "")
	m.check(t, "there", w, cloud.Answer{Exists: true, Architecture: "x86_64", Newest: "419.6.20250702"})
	m.answers[offerVersions] = fmt.Sprintf(listShape, "419.6.20250401")
	m.answers[at] = fmt.Sprintf(offerShape, `,"imageDeprecationStatus":{"imageState":"ScheduledForDeprecation","scheduledDeprecationTime":"2027-01-01T00:00:00+00:00","alternativeOption":{"type":"Plan","value":"x"}}`)
	m.check(t, "to be deprecated", w, cloud.Answer{Exists: true, Architecture: "x86_64", Deprecated: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)})
	m.answers[at] = fmt.Sprintf(offerShape, `,"imageDeprecationStatus":{"imageState":"Deprecated","alternativeOption":{"type":"Offer","value":"aro5"}}`)
	m.check(t, "deprecated", w, cloud.Answer{Architecture: "x86_64", Problem: "starts no new machines from it; its publisher recommends the offer aro5"})
	if q := m.queries[at]; q.Get("api-version") != computeVersion {
		t.Error(q)
	}
}

func TestGallery(t *testing.T) {
	m := newManager(t)
	m.Config.ResourceGroup = "images"
	w, at := wanted(gallery), galleryImage+"/versions/1.36.3"
	published := time.Date(2026, 6, 1, 10, 0, 0, 123456700, time.UTC)
	m.answers[galleryImage] = definitionShape
	m.answers[galleryImage+"/versions"] = `{"value":[{"name":"1.36.3"},{"name":"1.36.9","properties":{"publishingProfile":{"excludeFromLatest":true}}}],"nextLink":"` + m.address + subscription + galleryImage + `/versions?$skiptoken=2"}`
	m.answers[galleryImage+"/versions?2"] = `{"value":[{"name":"1.36.4"},{"name":"1.37.0"}]}`
	m.check(t, "none", w, cloud.Answer{Newest: "1.36.4"})
	m.answers[at] = fmt.Sprintf(galleryShape, "Succeeded", "", "West Europe", "Completed")
	m.check(t, "there", w, cloud.Answer{Exists: true, Architecture: "Arm64", Newest: "1.36.4", Created: published})
	if q := m.queries[at]; q.Get("api-version") != galleryVersion || q.Get("$expand") != "ReplicationStatus" {
		t.Error(q)
	}
	m.check(t, "by its identifier", wanted(map[string]string{"id": subscription + at}), cloud.Answer{Exists: true, Architecture: "Arm64", Newest: "1.36.4", Created: published})
	m.answers[at] = fmt.Sprintf(galleryShape, "Succeeded", `,"endOfLifeDate":"2027-06-01T00:00:00Z"`, "West Europe", "Completed")
	m.check(t, "its life ends", w, cloud.Answer{Exists: true, Architecture: "Arm64", Newest: "1.36.4", Created: published, Deprecated: time.Date(2027, 6, 1, 0, 0, 0, 0, time.UTC)})
	m.answers[at] = fmt.Sprintf(galleryShape, "Updating", "", "West Europe", "Completed")
	m.check(t, "incomplete", w, cloud.Answer{Architecture: "Arm64", Created: published, Problem: "in state Updating"})
	m.answers[at] = fmt.Sprintf(galleryShape, "Succeeded", "", "East US", "Completed")
	m.check(t, "no copy here", w, cloud.Answer{Architecture: "Arm64", Created: published, Problem: "has no copy in westeurope"})
	m.answers[at] = fmt.Sprintf(galleryShape, "Succeeded", "", "West Europe", "Replicating")
	m.check(t, "being copied", w, cloud.Answer{Architecture: "Arm64", Created: published, Problem: "is in state Replicating at 40 percent"})
	// The next page must not be another server's: it would get the token.
	m.answers[galleryImage+"/versions"] = `{"value":[],"nextLink":"https://other.example/x"}`
	delete(m.answers, at)
	if a, err := m.Resolve(context.Background(), w); err == nil || !strings.Contains(err.Error(), "it gets no token") {
		t.Errorf("%+v %v", a, err)
	}
}

func TestCommunityGallery(t *testing.T) {
	m := newManager(t)
	m.answers[communityImage] = `{"name":"ubuntu","properties":{"architecture":"x64"}}`
	m.answers[communityImage+"/versions"] = `{"value":[{"name":"1.36.3"},{"name":"1.36.4","properties":{"excludeFromLatest":true}}]}`
	m.answers[communityImage+"/versions/1.36.3"] = `{"name":"1.36.3","location":"westeurope","properties":{"publishedDate":"2026-06-01T10:00:00Z","endOfLifeDate":"2027-06-01T10:00:00Z"}}`
	m.check(t, "there", wanted(gallery), cloud.Answer{Exists: true, Architecture: "x86_64", Created: time.Date(2026, 6, 1, 10, 0, 0, 0, time.UTC), Deprecated: time.Date(2027, 6, 1, 10, 0, 0, 0, time.UTC)})
	if q := m.queries[communityImage+"/versions/1.36.3"]; q.Has("$expand") {
		t.Error("the community's API has no state of copies:", q)
	}
}

func TestManagedImage(t *testing.T) {
	m := newManager(t)
	w := wanted(map[string]string{"id": subscription + managed})
	m.check(t, "none", w, cloud.Answer{})
	m.answers[managed] = `{"name":"mine","location":"westeurope","properties":{"provisioningState":"Succeeded","hyperVGeneration":"V2"}}`
	m.check(t, "there", w, cloud.Answer{Exists: true})
	m.answers[managed] = `{"name":"mine","location":"eastus","properties":{"provisioningState":"Succeeded"}}`
	m.check(t, "elsewhere", w, cloud.Answer{Problem: "is in location eastus"})
}

// Only Azure itself can say that an image does not exist.
func TestErrors(t *testing.T) {
	m := newManager(t)
	for _, tc := range []struct {
		code    int
		failing string
		missing bool
	}{{404, "NotFound", true}, {404, "ParentResourceNotFound", true}, {404, "SubscriptionNotFound", false}, {404, "ResourceGroupNotFound", false}, {403, "AuthorizationFailed", false},
		{400, "NoRegisteredProviderFound", false}, {429, "TooManyRequests", false}, {500, "InternalServerError", false}} {
		m.code, m.failing = tc.code, tc.failing
		a, err := m.Resolve(context.Background(), wanted(offer))
		if a.Exists || tc.missing != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.failing) {
			t.Errorf("%s: %+v %v", tc.failing, a, err)
		}
	}
	m.secret = "another"
	if a, err := m.Resolve(context.Background(), wanted(offer)); err == nil || !strings.Contains(err.Error(), "credentials of Azure") {
		t.Errorf("a refused login is no answer: %+v %v", a, err)
	}
	for want, attributes := range map[string]map[string]string{
		"names no offer":         {},
		"latest may be another":  {"gallery": "g", "name": "n", "version": "latest"},
		"no attribute sku":       {"publisher": "p", "offer": "o", "version": "1.0.0"},
		"neither a version of a": {"id": "/subscriptions/sub/resourceGroups/g/providers/Microsoft.Compute/disks/d"},
	} {
		if a, err := m.Resolve(context.Background(), wanted(attributes)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v %v", want, a, err)
		}
	}
}

// The disk of the stream is a file for an installer: machines cannot name it.
func TestConcerns(t *testing.T) {
	m := newManager(t)
	site := cloud.Site{Name: "west", Platform: "azure", Cloud: m.Cloud}
	s := &bootstream.Stream{Images: []bootstream.Image{wanted(offer).Image, wanted(map[string]string{"url": "https://example.test/rhcos.vhd"}).Image}}
	asker := &cloud.Asker{Sites: []cloud.Site{site}, Now: time.Now}
	if got := asker.Ask(context.Background(), s); len(got) != 1 || got[0].Image.Attributes["offer"] != "aro4" {
		t.Errorf("%+v", got)
	}
}

func TestCheck(t *testing.T) {
	for want, c := range map[string]Config{"azure.location": {Subscription: "s"}, "azure.subscription": {Location: "l"}, "public, china or government": {Subscription: "s", Location: "l", Environment: "mars"}} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := (Config{Subscription: "s", Location: "l", Environment: "china"}).Check(); err != nil {
		t.Error(err)
	}
}
