# The vault's key and the administrator's token. Terraform makes the places and never sees the values, so that neither is in its
# state: docs/kubernetes.md, "On GKE", says how they get there and from there into the cluster.
resource "google_secret_manager_secret" "vault_key" {
  secret_id = "${var.name}-vault-key"

  replication {
    auto {}
  }

  lifecycle {
    # Without the key no checkpoint can be opened again.
    prevent_destroy = true
  }

  depends_on = [google_project_service.needed]
}

resource "google_secret_manager_secret" "token" {
  secret_id = "${var.name}-token"

  replication {
    auto {}
  }

  depends_on = [google_project_service.needed]
}
