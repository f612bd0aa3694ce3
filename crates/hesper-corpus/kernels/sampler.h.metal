// Sizes as plain constants of the program scope, the way generated headers write them.
constant uint GROUP_SIZE = 64;
constant float NEVER = -1e30f;
constant int BANNED[2] = {3, 11};

static float penalised(float logit, int seen, float strength) {
    const float scaled = logit > 0.0f ? logit / strength : logit * strength;
    return seen > 0 ? scaled : logit;
}
