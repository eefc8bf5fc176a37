package aws

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/refit-dev/refit/internal/bootimage/bootstream"
	"github.com/refit-dev/refit/providers/cloud"
)

// ec2Server answers DescribeImages in the form of EC2's published query API.
type ec2Server struct {
	*Cloud
	images   []string
	failing  string
	requests []url.Values
}

func newServer(t *testing.T) *ec2Server {
	t.Helper()
	for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		t.Setenv(name, filepath.Join(t.TempDir(), "none"))
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	s := &ec2Server{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		s.requests = append(s.requests, r.Form)
		if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=id/") || r.Form.Get("Action") != "DescribeImages" || s.failing != "" {
			code := s.failing
			if code == "" {
				code = "AuthFailure"
			}
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Response><Errors><Error><Code>%s</Code><Message>as the test set it</Message></Error></Errors><RequestID>r</RequestID></Response>`, code)
			return
		}
		var items string
		for _, i := range s.images {
			if id := r.Form.Get("ImageId.1"); id == "" || strings.Contains(i, "<imageId>"+id+"<") {
				items += "<item>" + i + "</item>"
			}
		}
		_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><DescribeImagesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId><imagesSet>%s</imagesSet></DescribeImagesResponse>`, items)
	}))
	t.Cleanup(server.Close)
	s.Cloud = &Cloud{Config: Config{Region: "eu-central-1", Endpoint: server.URL}}
	return s
}

func item(id, version, created, state, deprecated string) string {
	return fmt.Sprintf("<imageId>%s</imageId><imageState>%s</imageState><imageOwnerId>5318</imageOwnerId><architecture>x86_64</architecture><imageType>machine</imageType><name>rhcos-%s-x86_64</name><creationDate>%s</creationDate><deprecationTime>%s</deprecationTime>",
		id, state, version, created, deprecated)
}

func wanted(id string) cloud.Wanted {
	return cloud.Wanted{Image: bootstream.Image{Key: bootstream.Key{Architecture: "amd64", Platform: "aws", Region: "eu-central-1"}, Version: "9.6.20251023-0", Attributes: map[string]string{"image": id}}}
}

func TestResolve(t *testing.T) {
	s := newServer(t)
	s.images = []string{item("ami-1", "9.6.20251023-0", "2025-10-24T00:00:00.000Z", "available", "2027-10-24T00:00:00.000Z"),
		item("ami-2", "9.6.20251201-0", "2025-12-02T00:00:00.000Z", "available", ""), item("ami-3", "9.6.20250101-0", "2025-01-02T00:00:00.000Z", "disabled", "")}
	a, err := s.Resolve(context.Background(), wanted("ami-1"))
	if err != nil || !a.Exists || a.Architecture != "x86_64" || a.Newest != "rhcos-9.6.20251201-0-x86_64" || a.Names["image"] != "ami-1" ||
		!a.Created.Equal(time.Date(2025, 10, 24, 0, 0, 0, 0, time.UTC)) || !a.Deprecated.Equal(time.Date(2027, 10, 24, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v %v", a, err)
	}
	if r := s.requests[0]; r.Get("IncludeDeprecated") != "true" || r.Get("IncludeDisabled") != "true" {
		t.Error("a deprecated image would not be found:", r)
	}
	if r := s.requests[1]; r.Get("Owner.1") != "5318" || r.Get("Filter.1.Value.1") != "rhcos-9.6.*-x86_64" {
		t.Error(r)
	}
	if a, err = s.Resolve(context.Background(), wanted("ami-2")); err != nil || !a.Exists || a.Newest != "" || !a.Deprecated.IsZero() {
		t.Errorf("%+v %v", a, err)
	}
	if a, err = s.Resolve(context.Background(), wanted("ami-3")); err != nil || a.Exists || a.Problem != "image ami-3 is in state disabled" {
		t.Errorf("%+v %v", a, err)
	}
	if a, err = s.Resolve(context.Background(), wanted("ami-4")); err != nil || a.Exists || a.Problem != "" {
		t.Errorf("%+v %v", a, err)
	}
}

// Only EC2 itself can say that an image does not exist.
func TestErrors(t *testing.T) {
	s := newServer(t)
	for code, missing := range map[string]bool{"InvalidAMIID.NotFound": true, "InvalidAMIID.Unavailable": true, "UnauthorizedOperation": false, "RequestLimitExceeded": false, "AuthFailure": false} {
		s.failing = code
		a, err := s.Resolve(context.Background(), wanted("ami-1"))
		if a.Exists || missing != (err == nil) || err != nil && !strings.Contains(err.Error(), code) {
			t.Errorf("%s: %+v %v", code, a, err)
		}
	}
	s.Config.Endpoint = "http://127.0.0.1:1"
	if a, err := s.Resolve(context.Background(), wanted("ami-1")); err == nil {
		t.Errorf("%+v", a)
	}
	if _, err := s.Resolve(context.Background(), cloud.Wanted{}); err == nil || !strings.Contains(err.Error(), "attribute image") {
		t.Error(err)
	}
}

// An image of the same product, with the highest version that is not above the wanted one.
func TestProduct(t *testing.T) {
	s := newServer(t)
	const product = "59ead7de-2540-4653-a8b0-fa7926d5c845"
	s.Config.Product = product
	named := func(id, version, of, created string) string {
		return strings.Replace(item(id, version, created, "available", ""), "rhcos-"+version+"-x86_64", "rhcos-x86_64-"+version+"-"+of, 1)
	}
	w := wanted("ami-of-the-stream")
	w.Version = "418.94.202501221327-0"
	check := func(name, image, version string) {
		t.Helper()
		a, err := s.Resolve(context.Background(), w)
		if err != nil || a.Exists != (image != "") || a.Names["image"] != image || a.Version != version || a.Problem != "" {
			t.Errorf("%s: %+v %v", name, a, err)
		}
	}
	check("none", "", "")
	s.images = []string{named("ami-1", "415.92.202402201450-0", product, "2024-03-01T00:00:00.000Z"), named("ami-2", "417.94.202407010929-0", product, "2024-08-01T00:00:00.000Z"),
		named("ami-3", "417.94.202407010929-0", product, "2024-09-01T00:00:00.000Z"), named("ami-4", "419.96.202506010929-0", product, "2025-07-01T00:00:00.000Z"),
		named("ami-5", "418.94.202501221327-0", "another-product", "2025-02-01T00:00:00.000Z"), named("ami-6", "image", product, "2025-02-01T00:00:00.000Z")}
	check("it lags", "ami-3", "417.94.202407010929-0")
	if r := s.requests[len(s.requests)-1]; r.Get("Owner.1") != "aws-marketplace" || r.Get("Filter.1.Value.1") != "*-"+product || r.Get("Filter.2.Value.1") != "x86_64" {
		t.Error(r)
	}
	s.images = append(s.images, named("ami-7", "418.94.202501221327-0", product, "2025-02-01T00:00:00.000Z"))
	check("the same", "ami-7", "418.94.202501221327-0")
	s.failing = "RequestLimitExceeded"
	if _, err := s.Resolve(context.Background(), w); err == nil || !strings.Contains(err.Error(), product) {
		t.Error("a refusal is no answer:", err)
	}
	w.Version = "new"
	if _, err := s.Resolve(context.Background(), w); err == nil {
		t.Error("a version that is not known cannot be compared")
	}
}
