locals {
  zone = coalesce(var.zone, "${var.region}-b")
}

resource "google_project_service" "needed" {
  for_each = toset([
    "artifactregistry.googleapis.com",
    "cloudbuild.googleapis.com",
    "compute.googleapis.com",
    "container.googleapis.com",
    "iamcredentials.googleapis.com",
    "redis.googleapis.com",
    "secretmanager.googleapis.com",
    "servicenetworking.googleapis.com",
  ])

  service            = each.value
  disable_on_destroy = false
}

resource "google_compute_network" "hangar" {
  name                    = var.name
  auto_create_subnetworks = false

  depends_on = [google_project_service.needed]
}

resource "google_compute_subnetwork" "hangar" {
  name                     = var.name
  region                   = var.region
  network                  = google_compute_network.hangar.id
  ip_cidr_range            = "10.10.0.0/20"
  private_ip_google_access = true

  secondary_ip_range {
    range_name    = "pods"
    ip_cidr_range = "10.20.0.0/16"
  }

  secondary_ip_range {
    range_name    = "services"
    ip_cidr_range = "10.30.0.0/20"
  }
}

# Nodes have no addresses of their own; sandboxes reach remotes and model APIs through this.
resource "google_compute_router" "hangar" {
  name    = var.name
  region  = var.region
  network = google_compute_network.hangar.id
}

resource "google_compute_router_nat" "hangar" {
  name                               = var.name
  router                             = google_compute_router.hangar.name
  region                             = var.region
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "ALL_SUBNETWORKS_ALL_IP_RANGES"
}

# Memorystore is reached over this peering.
resource "google_compute_global_address" "services" {
  name          = "${var.name}-services"
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  prefix_length = 20
  network       = google_compute_network.hangar.id
}

resource "google_service_networking_connection" "services" {
  network                 = google_compute_network.hangar.id
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = [google_compute_global_address.services.name]
}
