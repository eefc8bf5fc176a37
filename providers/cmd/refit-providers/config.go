package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/refit-dev/refit/providers/aws"
	"github.com/refit-dev/refit/providers/azure"
	"github.com/refit-dev/refit/providers/cloud"
	"github.com/refit-dev/refit/providers/gcp"
	"github.com/refit-dev/refit/providers/ibm"
	"github.com/refit-dev/refit/providers/nutanix"
	"github.com/refit-dev/refit/providers/openstack"
	"github.com/refit-dev/refit/providers/vsphere"
)

// configuration is the configuration file.
type configuration struct {
	// Stream with the wanted images: a file, or an https address.
	Stream string `json:"stream"`
	// Files is the directory of the files that are uploaded.
	Files string `json:"files,omitempty"`
	// Download files that are missing in it, from where the stream has them.
	Download bool `json:"download,omitempty"`
	// EveryMinutes the clouds are asked; 0 is 15.
	EveryMinutes int           `json:"everyMinutes,omitempty"`
	Clouds       []cloudConfig `json:"clouds"`
}

// cloudConfig is one cloud: exactly one of the last fields is set.
type cloudConfig struct {
	Name string `json:"name"`
	// Region as the policies name it; empty for images without one.
	Region string `json:"region,omitempty"`
	// Image is the name of images there, with {version} and {architecture}.
	Image string `json:"image,omitempty"`
	// Upload files that are missing.
	Upload bool `json:"upload,omitempty"`
	// Credentials is a directory with the files username and password, or apikey for IBM Cloud,
	// as a mounted Secret.
	Credentials string `json:"credentials,omitempty"`

	VSphere   *vsphere.Config   `json:"vsphere,omitempty"`
	OpenStack *openstack.Config `json:"openstack,omitempty"`
	Nutanix   *nutanix.Config   `json:"nutanix,omitempty"`
	AWS       *aws.Config       `json:"aws,omitempty"`
	GCP       *gcp.Config       `json:"gcp,omitempty"`
	Azure     *azure.Config     `json:"azure,omitempty"`
	// VPC of IBM Cloud, and Power Virtual Server.
	IBMCloud *ibm.VPCConfig     `json:"ibmcloud,omitempty"`
	PowerVS  *ibm.PowerVSConfig `json:"powervs,omitempty"`
}

// platforms are the kinds of clouds of this program.
const platforms = "vsphere, openstack, nutanix, aws, gcp, azure, ibmcloud, powervs"

func readConfiguration(path string) (*configuration, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c := &configuration{EveryMinutes: 15}
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, k := range c.Clouds {
		if k.Azure == nil {
			continue
		}
		if err := k.Azure.FromCluster(); err != nil {
			return nil, fmt.Errorf("%s: cloud %s: %w", path, k.Name, err)
		}
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func (c *configuration) check() error {
	if c.Stream == "" {
		return errors.New("stream is missing: a file, or an https address")
	}
	if strings.HasPrefix(c.Stream, "http://") {
		return errors.New("stream must be a file or begin with https://: new machines start from what it names")
	}
	if len(c.Clouds) == 0 {
		return errors.New("clouds is empty: name at least one")
	}
	names, places := map[string]bool{}, map[string]string{}
	for _, k := range c.Clouds {
		if k.Name == "" || names[k.Name] {
			return fmt.Errorf("clouds: name %q is missing or there twice", k.Name)
		}
		names[k.Name] = true
		site, err := k.site()
		if err != nil {
			return fmt.Errorf("cloud %s: %w", k.Name, err)
		}
		place := site.Platform + "/" + site.Region
		if other := places[place]; other != "" {
			return fmt.Errorf("clouds %s and %s are both %s in region %q: set region, as the policies name it", other, k.Name, site.Platform, site.Region)
		}
		places[place] = k.Name
		if k.Upload && c.Files == "" {
			return fmt.Errorf("cloud %s uploads files, and files names no directory", k.Name)
		}
	}
	return nil
}

// site returns the cloud of a configuration.
func (k cloudConfig) site() (cloud.Site, error) {
	s := cloud.Site{Name: k.Name, Region: k.Region, Image: k.Image, Upload: k.Upload}
	kinds := 0
	for platform, resolver := range k.resolvers() {
		kinds, s.Platform, s.Cloud = kinds+1, platform, resolver
	}
	if kinds != 1 {
		return s, errors.New("set exactly one of " + platforms)
	}
	return s, k.checkNames(s)
}

// resolvers returns the clouds that are set, by their platforms.
func (k cloudConfig) resolvers() map[string]cloud.Resolver {
	out := map[string]cloud.Resolver{}
	if k.VSphere != nil {
		out["vsphere"] = &vsphere.Cloud{Config: *k.VSphere, Login: k.login}
	}
	if k.OpenStack != nil {
		out["openstack"] = &openstack.Cloud{Config: *k.OpenStack}
	}
	if k.Nutanix != nil {
		out["nutanix"] = &nutanix.Cloud{Config: *k.Nutanix, Login: k.login}
	}
	if k.AWS != nil {
		out["aws"] = &aws.Cloud{Config: *k.AWS}
	}
	if k.GCP != nil {
		out["gcp"] = &gcp.Cloud{Config: *k.GCP}
	}
	if k.Azure != nil {
		out["azure"] = &azure.Cloud{Config: *k.Azure}
	}
	if k.IBMCloud != nil {
		out["ibmcloud"] = &ibm.VPC{Config: *k.IBMCloud, Login: ibm.Login{APIKey: k.apiKey}}
	}
	if k.PowerVS != nil {
		out["powervs"] = &ibm.PowerVS{Config: *k.PowerVS, Login: ibm.Login{APIKey: k.apiKey}}
	}
	return out
}

// regional are the platforms whose streams have an image for each region.
func (k cloudConfig) regional() bool {
	return k.AWS != nil || k.IBMCloud != nil || k.PowerVS != nil
}

// checkNames refuses a cloud whose images have no name, or which takes no uploads.
func (k cloudConfig) checkNames(s cloud.Site) error {
	_, uploads := s.Cloud.(cloud.Uploader)
	switch {
	case k.regional() && k.Region == "":
		return errors.New("set region, as policies and streams name it")
	case (uploads || k.IBMCloud != nil || k.PowerVS != nil) && k.Image == "":
		return errors.New("image is missing: the name of images there, for example rhcos-{version}")
	case k.Upload && !uploads:
		return errors.New("this kind of cloud takes no uploads: leave upload out")
	}
	return k.checkPlace()
}

// checkPlace refuses a cloud that cannot be asked.
func (k cloudConfig) checkPlace() error {
	switch {
	case k.AWS != nil && k.AWS.Region == "":
		return errors.New("set aws.region")
	case k.Azure != nil:
		return k.Azure.Check()
	case k.IBMCloud != nil && k.IBMCloud.Region == "":
		return errors.New("set ibmcloud.region")
	case k.PowerVS != nil:
		return k.PowerVS.Check()
	}
	return nil
}

// login reads user and password, at each connection: a Secret may change.
func (k cloudConfig) login() (user, password string, err error) {
	if user, err = k.credential("username"); err != nil {
		return "", "", err
	}
	password, err = k.credential("password")
	return user, password, err
}

// apiKey reads the key of IBM Cloud.
func (k cloudConfig) apiKey() (string, error) { return k.credential("apikey") }

// credential reads a file of the credentials.
func (k cloudConfig) credential(name string) (string, error) {
	if k.Credentials == "" {
		return "", fmt.Errorf("cloud %s has no credentials: set the directory of the files username and password, or apikey", k.Name)
	}
	data, err := os.ReadFile(filepath.Join(k.Credentials, name))
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

// asker returns the asker of a configuration.
func (c *configuration) asker(log func(string, ...any)) (*cloud.Asker, error) {
	a := &cloud.Asker{Files: cloud.Files{Dir: c.Files}, Now: time.Now, Log: log}
	if c.Download {
		a.Files.Client = http.DefaultClient
	}
	for _, k := range c.Clouds {
		s, err := k.site()
		if err != nil {
			return nil, err
		}
		a.Sites = append(a.Sites, s)
	}
	return a, nil
}
