package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/refit-dev/refit/providers/cloud"
)

// environment is where a national cloud answers.
type environment struct{ endpoint, authority string }

var environments = map[string]environment{
	"":           {"https://management.azure.com", azcloud.AzurePublic.ActiveDirectoryAuthorityHost},
	"public":     {"https://management.azure.com", azcloud.AzurePublic.ActiveDirectoryAuthorityHost},
	"china":      {"https://management.chinacloudapi.cn", azcloud.AzureChina.ActiveDirectoryAuthorityHost},
	"government": {"https://management.usgovcloudapi.net", azcloud.AzureGovernment.ActiveDirectoryAuthorityHost},
}

// Check refuses a configuration that can ask nothing.
func (c Config) Check() error {
	if c.Subscription == "" || c.Location == "" {
		return errors.New("set azure.subscription and azure.location")
	}
	if _, ok := environments[c.Environment]; !ok {
		return fmt.Errorf("azure.environment is %q: use public, china or government", c.Environment)
	}
	return nil
}

// session asks Azure Resource Manager.
type session struct {
	client          *http.Client
	endpoint, token string
}

// connect logs in. The SDK finds the credentials. Its client for compute is not used: its
// packages take minutes to compile, for four questions.
func (c *Cloud) connect(ctx context.Context) (*session, error) {
	e := environments[c.Config.Environment]
	s := &session{client: c.Client, endpoint: e.endpoint}
	if s.client == nil {
		s.client = http.DefaultClient
	}
	if c.Config.Endpoint != "" {
		s.endpoint = strings.TrimSuffix(c.Config.Endpoint, "/")
	}
	if c.Config.Authority != "" {
		e.authority = c.Config.Authority
	}
	options := &azidentity.DefaultAzureCredentialOptions{DisableInstanceDiscovery: c.Config.Authority != "",
		ClientOptions: azcore.ClientOptions{Cloud: azcloud.Configuration{ActiveDirectoryAuthorityHost: e.authority}, Transport: s.client}}
	credential, err := azidentity.NewDefaultAzureCredential(options)
	if err != nil {
		return nil, fmt.Errorf("credentials of Azure: %w", err)
	}
	token, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{s.endpoint + "/.default"}})
	if err != nil {
		return nil, fmt.Errorf("credentials of Azure: %w", err)
	}
	s.token = token.Token
	return s, nil
}

// apiError is an error of Azure Resource Manager.
type apiError struct {
	status  string
	code    int
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("Azure answers %s: %s: %s", e.status, e.Code, e.Message)
}

// unknown reports whether Azure answered that it does not know an image. A subscription or a
// resource group that does not exist is another error.
func unknown(err error) bool {
	var e *apiError
	if !errors.As(err, &e) || e.code != http.StatusNotFound {
		return false
	}
	switch e.Code {
	case "NotFound", "ResourceNotFound", "ParentResourceNotFound", "PlatformImageNotFound":
		return true
	}
	return false
}

// maxAnswer is the size of the largest answer that is read, in bytes.
const maxAnswer = 8 << 20

func (s *session) get(ctx context.Context, path string, query url.Values, out any) error {
	return s.getURL(ctx, s.endpoint+path+"?"+query.Encode(), out)
}

func (s *session) getURL(ctx context.Context, address string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return err
	}
	if len(data) > maxAnswer {
		return fmt.Errorf("the API answers more than %d bytes", maxAnswer)
	}
	if resp.StatusCode != http.StatusOK {
		var e struct{ Error apiError }
		_ = json.Unmarshal(data, &e) // without a code it is an error too
		e.Error.status, e.Error.code = resp.Status, resp.StatusCode
		return &e.Error
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("answer of Azure: %w", err)
	}
	return nil
}

// architecture returns that of the definition of a gallery's image.
func (s *session) architecture(ctx context.Context, q question) (string, error) {
	var d version
	if err := s.get(ctx, q.definition, url.Values{"api-version": {galleryVersion}}, &d); err != nil {
		return "", fmt.Errorf("definition of image %s: %w", q, err)
	}
	return d.Properties.Architecture, nil
}

// newest returns the newest version of the same family, empty if that is this one.
func (s *session) newest(ctx context.Context, q question) (string, error) {
	if q.versions == "" {
		return "", nil
	}
	all, err := s.versions(ctx, q)
	if err != nil {
		return "", fmt.Errorf("versions of image %s: %w", q, err)
	}
	newest := q.version
	for _, v := range all {
		p := v.Properties
		same, _ := path.Match(cloud.Family(q.version), v.Name)
		if same && !p.NotLatest && !p.Publishing.NotLatest && cloud.Newer(v.Name, newest) {
			newest = v.Name
		}
	}
	if newest == q.version {
		return "", nil
	}
	return newest, nil
}

// maxPages of a list are read.
const maxPages = 50

// versions lists the versions of an image. The marketplace answers with an array, galleries with
// pages.
func (s *session) versions(ctx context.Context, q question) ([]version, error) {
	var all []version
	address := s.endpoint + q.versions + "?" + url.Values{"api-version": q.query["api-version"]}.Encode()
	for range maxPages {
		var answer json.RawMessage
		if err := s.getURL(ctx, address, &answer); err != nil {
			return nil, err
		}
		var p struct {
			Value    []version `json:"value"`
			NextLink string    `json:"nextLink"`
		}
		into := any(&p)
		if len(answer) > 0 && answer[0] == '[' {
			into = &p.Value
		}
		if err := json.Unmarshal(answer, into); err != nil {
			return nil, fmt.Errorf("answer of Azure: %w", err)
		}
		all = append(all, p.Value...)
		if p.NextLink == "" {
			return all, nil
		}
		if !strings.HasPrefix(p.NextLink, s.endpoint+"/") {
			return nil, fmt.Errorf("the list continues at another server, %s: it gets no token", p.NextLink)
		}
		address = p.NextLink
	}
	return nil, fmt.Errorf("the list of versions has more than %d pages", maxPages)
}
