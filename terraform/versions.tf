# Hangar on GKE. It makes what is Google's: cluster, bucket, Redis, registry, identities, secrets. The coordinator itself is
# applied from manifests/base afterwards: docs/kubernetes.md, "On GKE".
terraform {
  required_version = ">= 1.6"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 6.20"
    }
    # For the sandbox pool alone: only this one knows GKE Sandbox (sandbox_config) in version 6.
    google-beta = {
      source  = "hashicorp/google-beta"
      version = "~> 6.20"
    }
  }
}

provider "google" {
  project = var.project
  region  = var.region
}

provider "google-beta" {
  project = var.project
  region  = var.region
}
