resource "google_container_cluster" "hangar" {
  name       = var.name
  location   = local.zone
  network    = google_compute_network.hangar.id
  subnetwork = google_compute_subnetwork.hangar.id

  remove_default_node_pool = true
  initial_node_count       = 1
  deletion_protection      = var.deletion_protection

  # Enforces NetworkPolicies.
  datapath_provider = "ADVANCED_DATAPATH"

  release_channel {
    channel = "REGULAR"
  }

  workload_identity_config {
    workload_pool = "${var.project}.svc.id.goog"
  }

  ip_allocation_policy {
    cluster_secondary_range_name  = "pods"
    services_secondary_range_name = "services"
  }

  private_cluster_config {
    enable_private_nodes    = true
    enable_private_endpoint = false
    master_ipv4_cidr_block  = "172.16.0.0/28"
  }

  dynamic "master_authorized_networks_config" {
    for_each = length(var.authorized_networks) > 0 ? [var.authorized_networks] : []

    content {
      dynamic "cidr_blocks" {
        for_each = master_authorized_networks_config.value

        content {
          cidr_block   = cidr_blocks.key
          display_name = cidr_blocks.value
        }
      }
    }
  }
}

# Two coordinators, one on each node, so that a node that goes takes one of them.
resource "google_container_node_pool" "coordinator" {
  name       = "coordinator"
  cluster    = google_container_cluster.hangar.id
  node_count = 2

  node_config {
    machine_type    = var.coordinator_machine_type
    service_account = google_service_account.nodes.email
    oauth_scopes    = ["https://www.googleapis.com/auth/cloud-platform"]
    labels          = { "hangar.dev/pool" = "coordinator" }

    workload_metadata_config {
      mode = "GKE_METADATA"
    }

    shielded_instance_config {
      enable_secure_boot = true
    }
  }

  management {
    auto_repair  = true
    auto_upgrade = true
  }
}

# From no node at all to sandbox_max_nodes. Environments select it: node_selector and tolerations, docs/kubernetes.md.
resource "google_container_node_pool" "sandbox" {
  provider = google-beta

  name               = "sandbox"
  cluster            = google_container_cluster.hangar.id
  initial_node_count = 0

  autoscaling {
    min_node_count = 0
    max_node_count = var.sandbox_max_nodes
  }

  node_config {
    machine_type    = var.sandbox_machine_type
    image_type      = "COS_CONTAINERD"
    disk_size_gb    = var.sandbox_disk_gb
    spot            = var.sandbox_spot
    service_account = google_service_account.nodes.email
    oauth_scopes    = ["https://www.googleapis.com/auth/cloud-platform"]
    labels          = { "hangar.dev/pool" = "sandbox" }

    taint {
      key    = "hangar.dev/pool"
      value  = "sandbox"
      effect = "NO_SCHEDULE"
    }

    gcfs_config {
      enabled = var.image_streaming
    }

    workload_metadata_config {
      mode = "GKE_METADATA"
    }

    shielded_instance_config {
      enable_secure_boot = true
    }

    dynamic "sandbox_config" {
      for_each = var.sandbox_gvisor ? ["gvisor"] : []

      content {
        sandbox_type = sandbox_config.value
      }
    }
  }

  management {
    auto_repair  = true
    auto_upgrade = true
  }

  lifecycle {
    # The autoscaler's.
    ignore_changes = [initial_node_count]
  }
}
