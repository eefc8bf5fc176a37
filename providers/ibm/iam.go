package ibm

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
)

// Login is how the clouds of this package are asked.
type Login struct {
	// APIKey is read before each question: a Secret may change.
	APIKey func() (string, error)
	// Client sends the requests; nil is the default one.
	Client *http.Client
}

const (
	publicIAM = "https://iam.cloud.ibm.com"
	// maxAnswer is the size of the largest answer that is read, in bytes.
	maxAnswer = 8 << 20
)

// session is a token of an API key. IBM's SDKs are not used: they are packages of several
// megabytes of generated code, and bring a client of MongoDB, for two lists.
type session struct {
	client *http.Client
	token  string
}

// connect gets a token at iam, or at the public address of it.
func (l Login) connect(ctx context.Context, iam string) (*session, error) {
	key, err := l.APIKey()
	if err != nil {
		return nil, err
	}
	if iam == "" {
		iam = publicIAM
	}
	s := &session{client: l.Client}
	if s.client == nil {
		s.client = http.DefaultClient
	}
	form := url.Values{"grant_type": {"urn:ibm:params:oauth:grant-type:apikey"}, "apikey": {key}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(iam, "/")+"/identity/token", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var out struct {
		Token string `json:"access_token"`
	}
	if err := s.do(req, &out); err != nil {
		return nil, fmt.Errorf("log in to IBM Cloud: %w", err)
	}
	if out.Token == "" {
		return nil, errors.New("log in to IBM Cloud: the answer has no token")
	}
	s.token = out.Token
	return s, nil
}

// get asks with the token.
func (s *session) get(ctx context.Context, address string, header map[string]string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	for k, v := range header {
		req.Header.Set(k, v)
	}
	return s.do(req, out)
}

func (s *session) do(req *http.Request, out any) error {
	req.Header.Set("Accept", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		var u *url.Error // with the address, which has no key
		if errors.As(err, &u) {
			return fmt.Errorf("%s: %w", req.URL.Host, u.Err)
		}
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return err
	}
	switch {
	case len(data) > maxAnswer:
		return fmt.Errorf("%s answers more than %d bytes", req.URL.Host, maxAnswer)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s answers %s%s", req.URL.Host, resp.Status, message(data))
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("answer of %s: %w", req.URL.Host, err)
	}
	return nil
}

// message returns the text of an error: IAM, VPC and Power Virtual Server have forms of their own.
func message(data []byte) string {
	var e struct {
		IAM    string `json:"errorMessage"`
		Power  string `json:"description"`
		Errors []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	_ = json.Unmarshal(data, &e) // without a text the status is enough
	text := e.IAM + e.Power
	if len(e.Errors) > 0 {
		text += e.Errors[0].Message
	}
	if text == "" {
		return ""
	}
	return ": " + text
}

func when(text string) time.Time {
	t, _ := time.Parse(time.RFC3339, text)
	return t
}
