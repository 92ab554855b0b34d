# Hangar on GKE. It makes what is Google's: cluster, bucket, Redis, registry, identities, secrets. The coordinator itself is
# applied from manifests/base afterwards: docs/kubernetes.md, "On GKE".
terraform {
  required_version = ">= 1.6"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 6.20"
    }
  }
}

provider "google" {
  project = var.project
  region  = var.region
}
