package ibm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/providers/cloud"
)

const (
	workspaceCRN  = "crn:v1:bluemix:public:power-iaas:eu-de-1:a/0123:5aa1:" + ":"
	powerImages   = "/pcloud/v1/cloud-instances/5aa1/images"
	vpcImages     = "/v1/images"
	tokenPath     = "/identity/token"
	created       = "2026-06-01T10:00:00.000Z"
	forbiddenBody = `{"errors":[{"code":"not_authorized","message":"as the test set it"}],"trace":"t"}`
)

// ibmServer answers in the form of the published APIs of IAM, VPC and Power Virtual Server.
type ibmServer struct {
	address string
	key     string
	images  []string
	code    int
	body    string
	last    *http.Request
}

func newServer(t *testing.T) *ibmServer {
	t.Helper()
	s := &ibmServer{key: "key"}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.address = server.URL
	return s
}

func (s *ibmServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path == tokenPath && r.FormValue("grant_type") == "urn:ibm:params:oauth:grant-type:apikey" && r.FormValue("apikey") == s.key:
		_, _ = w.Write([]byte(`{"access_token":"t","refresh_token":"not_supported","token_type":"Bearer","expires_in":3600,"scope":"ibm openid"}`))
		return
	case r.URL.Path == tokenPath:
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"errorCode":"BXNIM0415E","errorMessage":"Provided API key could not be found."}`))
		return
	case r.Header.Get("Authorization") != "Bearer t" || r.URL.Path == powerImages && r.Header.Get("CRN") != workspaceCRN:
		w.WriteHeader(http.StatusUnauthorized)
		return
	case s.code != 0:
		w.WriteHeader(s.code)
		_, _ = w.Write([]byte(s.body))
		return
	case r.URL.Path != vpcImages && r.URL.Path != powerImages:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	s.last = r
	_, _ = fmt.Fprintf(w, `{"images":[%s]}`, strings.Join(s.images, ","))
}

func (s *ibmServer) login() Login { return Login{APIKey: func() (string, error) { return "key", nil }} }

func (s *ibmServer) vpc() *VPC {
	return &VPC{Login: s.login(), Config: VPCConfig{Region: "eu-de", Endpoint: s.address, IAM: s.address}}
}

func (s *ibmServer) powerVS() *PowerVS {
	return &PowerVS{Login: s.login(), Config: PowerVSConfig{Region: "eu-de", CRN: workspaceCRN, Endpoint: s.address, IAM: s.address}}
}

func wanted(attributes map[string]string) cloud.Wanted {
	return cloud.Wanted{Name: "rhcos-9-6-1", Image: bootstream.Image{Key: bootstream.Key{Architecture: "amd64", Platform: "ibmcloud", Region: "eu-de"}, Version: "9.6.1", Attributes: attributes}}
}

var object = map[string]string{"object": "rhcos-9-6-1.qcow2", "bucket": "rhcos", "url": "https://example.test/rhcos.qcow2"}

func vpcItem(name, status, more string) string {
	return fmt.Sprintf(`{"id":"r010-1","name":%q,"status":%q,"created_at":%q,"encryption":"none","visibility":"private","operating_system":{"architecture":"amd64","family":"Red Hat"},"file":{"size":1,"checksums":{"sha256":"ab"}},"status_reasons":[]%s}`,
		name, status, created, more)
}

// check asks, and compares the parts of the answer.
func check(t *testing.T, name string, c cloud.Resolver, w cloud.Wanted, want cloud.Answer) {
	t.Helper()
	a, err := c.Resolve(context.Background(), w)
	if err != nil || a.Exists != want.Exists || a.Unverified != want.Unverified || a.Architecture != want.Architecture || (a.Problem == "") != (want.Problem == "") ||
		!strings.Contains(a.Problem, want.Problem) || !a.Deprecated.Equal(want.Deprecated) {
		t.Errorf("%s: %+v %v; want %+v", name, a, err, want)
	}
	if a.Exists && (a.Names["name"] != "rhcos-9-6-1" || a.Names["id"] == "" || !a.Created.Equal(time.Date(2026, 6, 1, 10, 0, 0, 0, time.UTC))) {
		t.Errorf("%s: %+v", name, a)
	}
}

func TestVPC(t *testing.T) {
	s := newServer(t)
	c, w := s.vpc(), wanted(object)
	check(t, "none", c, w, cloud.Answer{})
	s.images = []string{vpcItem("rhcos-9-6-10", "available", "")}
	check(t, "another name", c, w, cloud.Answer{})
	s.images = []string{vpcItem(w.Name, "available", "")}
	check(t, "there", c, w, cloud.Answer{Exists: true, Unverified: true, Architecture: "amd64"})
	if q := s.last.URL.Query(); q.Get("name") != w.Name || q.Get("generation") != "2" || q.Get("version") != vpcVersion || q.Has("resource_group.id") {
		t.Error(q)
	}
	for _, tc := range []struct {
		name, status, more string
		want               cloud.Answer
	}{
		{"to be deprecated", "available", `,"deprecation_at":"2027-01-01T00:00:00Z"`, cloud.Answer{Exists: true, Unverified: true, Deprecated: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}},
		{"deprecated, then obsolete", "deprecated", `,"obsolescence_at":"2027-02-01T00:00:00Z"`, cloud.Answer{Exists: true, Unverified: true, Deprecated: time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)}},
		{"obsolete", "obsolete", "", cloud.Answer{Problem: "is in status obsolete"}},
		{"being imported", "pending", "", cloud.Answer{Problem: "is in status pending"}},
		{"failed", "failed", `,"status_reasons":[{"code":"image_request_queued","message":"no right to read the bucket"}]`, cloud.Answer{Problem: "failed: no right to read the bucket"}},
	} {
		s.images, tc.want.Architecture = []string{vpcItem(w.Name, tc.status, tc.more)}, "amd64"
		check(t, tc.name, c, w, tc.want)
	}
	s.images = []string{vpcItem(w.Name, "available", ""), vpcItem(w.Name, "available", "")}
	check(t, "two", c, w, cloud.Answer{Problem: "there are 2 images"})
	c.Config.ResourceGroup = "g1"
	w.Name = "rhcos-9.6.1" // VPC allows no dots
	s.images = s.images[:1]
	check(t, "of a group", c, w, cloud.Answer{Exists: true, Unverified: true, Architecture: "amd64"})
	if s.last.URL.Query().Get("resource_group.id") != "g1" {
		t.Error(s.last.URL)
	}
}

// Where the stream has the SHA-256 of the file, or of its contents, VPC's is compared with it.
func TestVPCComparesTheFile(t *testing.T) {
	s := newServer(t)
	c := s.vpc()
	for name, tc := range map[string]struct {
		sum, contents, more string
		want                cloud.Answer
	}{
		"the file":          {"ab", "", "", cloud.Answer{Exists: true}},
		"its contents":      {"cd", "ab", "", cloud.Answer{Exists: true}},
		"another file":      {"cd", "ef", "", cloud.Answer{Problem: "was made from a file with SHA-256 ab"}},
		"an encrypted copy": {"cd", "ef", `,"encryption":"user_managed"`, cloud.Answer{Exists: true, Unverified: true}},
	} {
		w := wanted(map[string]string{"location": "https://example.test/rhcos.qcow2.gz", "sha256": tc.sum, "uncompressedSha256": tc.contents})
		s.images, tc.want.Architecture = []string{vpcItem(w.Name, "available", tc.more)}, "amd64"
		check(t, name, c, w, tc.want)
	}
}

func TestPowerVS(t *testing.T) {
	s := newServer(t)
	c, w := s.powerVS(), wanted(object)
	item := func(name, state, endianness string) string {
		return fmt.Sprintf(`{"imageID":"9b1","name":%q,"state":%q,"creationDate":%q,"description":"","specifications":{"architecture":"ppc64","endianness":%q,"hypervisorType":"phyp","operatingSystem":"rhel"}}`, name, state, created, endianness)
	}
	check(t, "none", c, w, cloud.Answer{})
	s.images = []string{item("another", "active", ""), item(w.Name, "active", "little-endian")}
	check(t, "there", c, w, cloud.Answer{Exists: true, Unverified: true, Architecture: "ppc64le"})
	s.images = []string{item(w.Name, "active", "big-endian")}
	check(t, "of the other order of bytes", c, w, cloud.Answer{Exists: true, Unverified: true, Architecture: "ppc64"})
	s.images = []string{item(w.Name, "queued", "little-endian")}
	check(t, "being imported", c, w, cloud.Answer{Architecture: "ppc64le", Problem: "is in state queued"})
	s.images = append(s.images, s.images[0])
	check(t, "two", c, w, cloud.Answer{Problem: "has 2 images"})
}

// Only a list without the name says that an image does not exist.
func TestErrors(t *testing.T) {
	s := newServer(t)
	for name, c := range map[string]cloud.Resolver{"VPC": s.vpc(), "Power": s.powerVS()} {
		for _, tc := range []struct {
			code int
			body string
		}{{http.StatusForbidden, forbiddenBody}, {http.StatusNotFound, `{"description":"as the test set it","error":"not found"}`}, {http.StatusInternalServerError, forbiddenBody}} {
			s.code, s.body = tc.code, tc.body
			if a, err := c.Resolve(context.Background(), wanted(object)); err == nil || !strings.Contains(err.Error(), "as the test set it") {
				t.Errorf("%s %d: %+v %v", name, tc.code, a, err)
			}
		}
		s.code, s.body = http.StatusOK, "no JSON"
		if a, err := c.Resolve(context.Background(), wanted(object)); err == nil {
			t.Errorf("%s: %+v", name, a)
		}
		s.code, s.key = 0, "another"
		if _, err := c.Resolve(context.Background(), wanted(object)); err == nil || !strings.Contains(err.Error(), "Provided API key could not be found") || strings.Contains(err.Error(), "apikey") {
			t.Errorf("%s: %v", name, err)
		}
		s.key = "key"
		if _, err := c.Resolve(context.Background(), cloud.Wanted{}); !errors.Is(err, errNoName) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := s.vpc()
	c.Config.Endpoint = "http://127.0.0.1:1"
	if a, err := c.Resolve(context.Background(), wanted(object)); err == nil {
		t.Errorf("%+v", a)
	}
	c.APIKey = func() (string, error) { return "", errors.New("no file apikey") }
	if _, err := c.Resolve(context.Background(), wanted(object)); err == nil || !strings.Contains(err.Error(), "no file apikey") {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	for want, c := range map[string]PowerVSConfig{"set powervs.region": {CRN: workspaceCRN}, "is not that of a workspace": {Region: "eu-de", CRN: "crn:v1:bluemix:public:is:eu-de:a/0123:::"}, `"" is not`: {Region: "eu-de"}} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := (PowerVSConfig{Region: "eu-de", CRN: workspaceCRN}).Check(); err != nil {
		t.Error(err)
	}
}
