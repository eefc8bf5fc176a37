package aws

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
)

// The version of EC2's query API, and the largest answer that is read, in bytes.
const (
	apiVersion = "2016-11-15"
	maxAnswer  = 16 << 20
)

// apiError is an error of EC2.
type apiError struct {
	Code    string `xml:"Errors>Error>Code"`
	Message string `xml:"Errors>Error>Message"`
	status  string
}

func (e *apiError) Error() string {
	return fmt.Sprintf("EC2 answers %s: %s: %s", e.status, e.Code, e.Message)
}

// describeImages sends one request. The SDK finds the credentials and signs it. The SDK's client
// for EC2 is not used: it takes minutes and gigabytes to compile, for one question.
func (c *Cloud) describeImages(ctx context.Context, parameters url.Values) ([]image, error) {
	parameters.Set("Action", "DescribeImages")
	parameters.Set("Version", apiVersion)
	body := parameters.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Config.endpoint(), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	if err := c.sign(ctx, req, body); err != nil {
		return nil, err
	}
	client := c.Client
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxAnswer {
		return nil, fmt.Errorf("EC2 answers more than %d bytes", maxAnswer)
	}
	return parse(resp, data)
}

func parse(resp *http.Response, data []byte) ([]image, error) {
	if resp.StatusCode != http.StatusOK {
		e := &apiError{status: resp.Status}
		_ = xml.Unmarshal(data, e) // without a code it is an error too
		return nil, e
	}
	var out struct {
		XMLName xml.Name `xml:"DescribeImagesResponse"`
		Images  []image  `xml:"imagesSet>item"`
	}
	if err := xml.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("answer of EC2: %w", err)
	}
	return out.Images, nil
}

func (c *Cloud) sign(ctx context.Context, req *http.Request, body string) error {
	options := []func(*config.LoadOptions) error{config.WithRegion(c.Config.Region)}
	if c.Config.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(c.Config.Profile))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return fmt.Errorf("configuration of AWS: %w", err)
	}
	if cfg.Credentials == nil {
		return errors.New("no credentials for AWS: set a profile, variables or a role")
	}
	credentials, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return fmt.Errorf("credentials of AWS: %w", err)
	}
	sum := sha256.Sum256([]byte(body))
	return v4.NewSigner().SignHTTP(ctx, credentials, req, hex.EncodeToString(sum[:]), "ec2", c.Config.Region, time.Now())
}
