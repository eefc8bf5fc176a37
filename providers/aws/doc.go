// Package aws asks EC2 about images (AMIs) of one account and region.
//
// Promise: an image exists if EC2 describes it to this account in state available. Only EC2's own
// answer that the identifier is unknown or unavailable means that it does not exist; a refused
// login or another error is no answer. The package reads only (ec2:DescribeImages).
//
// Inputs: the region, credentials as the AWS command line finds them. Output: cloud.Answer. Caller:
// cmd/refit-providers.
package aws
